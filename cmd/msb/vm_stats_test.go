//go:build vmtest

package main

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/msb-project/msb/sandbox"
)

// TestVMStats has a guest that is denied something, and looks at its figures in each way there is.
func TestVMStats(t *testing.T) {
	const name = "figures"
	dir, env := otherHome(t)
	msb := func(args ...string) result { return finish(t, command(t, env, args...)) }
	msb("run", "--vm", "qemu", "-q", "-d", "--name", name, "--disk", "64M", "--", "sleep", "1000").want(t, 0, name+"\n")
	msb("exec", name, "--", "sh", "-c", "nc -w 2 192.0.2.1 80; nslookup denied.example; true")
	var all []sandbox.Usage
	got := msb("stats", "--no-stream", "--json")
	if err := json.Unmarshal([]byte(got.out), &all); err != nil || len(all) != 1 {
		t.Fatalf("%v: %s%s", err, got.out, got.err)
	}
	u := &all[0]
	if u.Name != name || u.CPU == 0 || u.Resident == 0 || u.Disk != 64<<20 || u.Jobs != 1 || u.Guest == nil || u.Guest.MemoryUsed == 0 || u.Guest.Processes == 0 {
		t.Errorf("%+v, %+v", u, u.Guest)
	}
	denied := map[string]uint64{}
	if g := u.Gateway; g == nil || g.BytesUp == 0 || g.BytesDown == 0 || g.DNS.Queries == 0 || g.DNS.Refused == 0 {
		t.Fatalf("%+v", u.Gateway)
	}
	for _, d := range u.Gateway.Denied {
		denied[d.Kind] += d.Count
	}
	if denied["flow.open"] == 0 || denied["dns.query"] == 0 {
		t.Errorf("denials: %v", u.Gateway.Denied)
	}
	if table := msb("stats", "--no-stream", name); !strings.Contains(table.out, name) || !strings.HasPrefix(table.out, "NAME") {
		t.Errorf("%s%s", table.out, table.err)
	}
	sample := `msb_gateway_denied_total{kind="flow.open",reason="`
	if once := msb("metrics"); once.code != 0 || !strings.Contains(once.out, "msb_sandbox_up{sandbox=\""+name+"\"} 1") || !strings.HasSuffix(once.out, "# EOF\n") {
		t.Errorf("%d: %s%s", once.code, once.out, once.err)
	}
	cmd := command(t, env, "metrics", "--listen", "0")
	errs, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(errs).ReadString('\n')
	_, url, _ := strings.Cut(strings.TrimSpace(line), "serving ")
	if err != nil || !strings.HasPrefix(url, "http://127.0.0.1:") {
		t.Fatalf("%v: %q", err, line)
	}
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil || !strings.Contains(string(body), sample) {
		t.Errorf("%v: no %s in\n%s", err, sample, body)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // by the signal
	msb("stop", name).want(t, 0, name+"\n")
	if code := msb("stats", "--no-stream", name).code; code != exitSandbox {
		t.Errorf("of one that is stopped: %d", code)
	}
	msb("rm", name).want(t, 0, name+"\n")
	nothingLeft(t, dir)
}
