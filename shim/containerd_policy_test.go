//go:build containerdtest

package shim_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// serveIn serves "inside" on the loopback of a network namespace, and returns the port.
func serveIn(t *testing.T, netns string) int {
	t.Helper()
	type answer struct {
		l   net.Listener
		err error
	}
	made := make(chan answer)
	go func() {
		runtime.LockOSThread() // the thread ends with this goroutine
		ns, err := unix.Open(netns, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			err = unix.Setns(ns, unix.CLONE_NEWNET)
		}
		var l net.Listener
		if err == nil {
			l, err = net.Listen("tcp", "127.0.0.1:0")
		}
		made <- answer{l, err}
	}()
	a := <-made
	if a.err != nil {
		t.Fatal(a.err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "inside") })}
	go func() { _ = s.Serve(a.l) }()
	t.Cleanup(func() { _ = s.Close() })
	return a.l.Addr().(*net.TCPAddr).Port
}

// TestContainerdPolicy: what leaves a pod's machine leaves it in the pod's network namespace, and as far as floor and
// annotation allow. Each refusal has its twin: the same request under the floor alone; in the pod's own namespace.
func TestContainerdPolicy(t *testing.T) {
	n := startNode(t)
	name := filepath.Base(n.dir)
	if out, err := exec.Command("ip", "netns", "add", name).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "delete", name).Run() })
	if out, err := exec.Command("ip", "-n", name, "link", "set", "lo", "up").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	netns := "/var/run/netns/" + name
	port := serveIn(t, netns)
	n.write(t, "floor.toml", fmt.Sprintf(`version = 1
[[egress.allow]]
hosts = ["inside.example", "other.example"]
ports = [80]
protocol = "http"
[hosts]
"inside.example" = "127.0.0.1:%d"
"other.example" = "127.0.0.1:%[1]d"
`, port))
	n.write(t, "resolv.conf", "nameserver 192.0.2.53\n") // whatever is asked on port 53 is msb's to answer
	tighter := fmt.Sprintf("version = 1\n[[egress.allow]]\nhosts = [\"inside.example\"]\nports = [80]\nprotocol = \"http\"\n[hosts]\n\"inside.example\" = \"127.0.0.1:%d\"\n", port)
	pod := []string{"--mount", "type=bind,src=" + n.file("resolv.conf") + ",dst=/etc/resolv.conf,options=bind:ro", "--annotation", "io.kubernetes.cri.sandbox-name=web", "--annotation", "io.kubernetes.cri.sandbox-namespace=shop"}
	for i, c := range []struct {
		flags []string
		want  string
	}{
		{[]string{"--with-ns", "network:" + netns}, "inside\ninside\n"},
		{[]string{"--with-ns", "network:" + netns, "--annotation", "msb.dev/policy=" + tighter, "--annotation", "msb.dev/audit=on", "--annotation", "msb.dev/capture=on"}, "inside\nno\n"},
		{nil, "no\nno\n"}, // nobody serves in the node's namespace
	} {
		args := append(append(append([]string{"--rm"}, pod...), c.flags...), testImage, fmt.Sprintf("p%d", i), "/bin/ask", "http://inside.example/", "http://other.example/")
		if r := n.try(n.run("msb", args...)...); r.out != c.want {
			t.Errorf("%q: got %q, want %q\n%s", c.flags, r.out, c.want, r.err)
		}
	}
	if got, _ := filepath.Glob(n.file("records/*")); len(got) != 2 {
		t.Errorf("records %q, want those of one pod", got)
	}
	b, err := os.ReadFile(n.file("records/shop_web_p1.audit.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var denied bool
	for line := range strings.Lines(string(b)) {
		var e struct {
			Action, Reason string
			Labels         map[string]string
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		if e.Labels["pod"] != "web" || e.Labels["namespace"] != "shop" || e.Labels["node"] == "" || e.Labels["container"] != "p1" {
			t.Errorf("labels %v", e.Labels)
		}
		denied = denied || e.Action == "deny"
	}
	if !denied {
		t.Errorf("no denial in the audit log:\n%s", b)
	}
	n.isClean(t)
}
