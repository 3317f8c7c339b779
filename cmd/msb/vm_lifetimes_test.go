//go:build vmtest

package main

import (
	"encoding/json"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/msb-project/msb/sandbox"
)

// TestVMLifetimes stops sandboxes by their times: the notice, SIGTERM to the job, what is kept, and what counts as use.
func TestVMLifetimes(t *testing.T) {
	const name = "life"
	dir, env := otherHome(t)
	msb := func(args ...string) result { return finish(t, command(t, env, args...)) }
	status := func() (st sandbox.Status) {
		t.Helper()
		if err := json.Unmarshal([]byte(msb("inspect", name).out), &st); err != nil {
			t.Fatal(err)
		}
		return st
	}
	job := `trap 'echo told to end; exit 3' TERM; while :; do [ -e /run/msb-stop ] && read -r at why < /run/msb-stop && echo "notice of $why" && break; sleep .2; done; while :; do sleep .2; done`
	msb("run", "--vm", "qemu", "-q", "-d", "--name", name, "--max-duration", "1h", "-p", "80", "--", "sh", "-c", job).want(t, 0, name+"\n")
	msb("update", "--max-duration", "40s", name).want(t, 0, name+"\n")
	eventually(t, "the notice", func() bool { return strings.Contains(msb("logs", name).out, "notice of max-duration") })
	if got := msb("events", "--filter", "event=sandbox.stopping", name); !strings.Contains(got.out, "msb keep "+name) {
		t.Errorf("%s%s", got.out, got.err)
	}
	msb("update", "--max-duration", "1h", name).want(t, 0, name+"\n")
	eventually(t, "the notice to go away", func() bool { return msb("exec", name, "--", "test", "-e", "/run/msb-stop").code == 1 })
	msb("keep", name).want(t, 0, name+"\n")
	msb("stop", name).want(t, 0, name+"\n")
	if st := status(); st.Ran <= 0 || st.Ran > time.Hour || st.Lifetime != time.Hour {
		t.Errorf("after a stop %s of %s are over", st.Ran, st.Lifetime)
	}
	ran := status().Ran
	if got := msb("start", name); got.code != 0 || got.out != name+"\n" || !strings.Contains(got.err, "`msb exec -d "+name+" -- COMMAND` runs one\n") {
		t.Errorf("start: %+v, want a hint at the command", got)
	}
	msb("exec", "-d", "--job", "end", name, "--", "sh", "-c", `trap 'echo told to end; exit 3' TERM; while :; do sleep .2; done`).want(t, 0, "end\n")
	msb("update", "--max-duration", "2s", name).want(t, 0, name+"\n")
	eventually(t, "its end", func() bool { return status().End != nil })
	if st := status(); st.End.Kind != sandbox.KindLifetime || st.Ran <= ran {
		t.Errorf("it ended as %+v after %s, %s before", st.End, st.Ran, ran)
	}
	if logs := msb("job", "logs", name, "end"); logs.out != "told to end\n" {
		t.Errorf("the job's last words: %q%s", logs.out, logs.err)
	}
	msb("job", "wait", name, "end").want(t, 0, "3\n")

	// A connection alone: the server is a daemon, and no job.
	msb("update", "--max-duration", "0", name).want(t, 0, name+"\n")
	msb("start", name).want(t, 0, name+"\n")
	msb("exec", name, "--", "sh", "-c", "httpd -h /etc && test ! -e /run/msb-stop").want(t, 0, "")
	_, address, _ := strings.Cut(strings.SplitN(msb("port", name).out, "\n", 2)[0], " -> ")
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the connection to be carried", func() bool {
		var all []sandbox.Usage
		err := json.Unmarshal([]byte(msb("stats", "--no-stream", "--json", name).out), &all)
		return err == nil && len(all) == 1 && all[0].Gateway.Clients == 1
	})
	msb("update", "--idle-timeout", "3s", name).want(t, 0, name+"\n")
	for range 5 { // of which none is a use
		time.Sleep(time.Second)
		msb("stats", "--no-stream", "-q", name).want(t, 0, name+"\n")
	}
	if st := status(); !st.Running {
		t.Errorf("it ended while somebody was connected: %+v", st.End)
	}
	_ = conn.Close()
	eventually(t, "its end", func() bool { return status().End != nil })
	if st := status(); st.End.Kind != sandbox.KindIdle {
		t.Errorf("it ended as %+v", st.End)
	}
	msb("rm", name).want(t, 0, name+"\n")
	nothingLeft(t, dir)
}
