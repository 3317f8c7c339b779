//go:build vmtest

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/sandbox"
)

// TestVMPausedGuestsStandStill counts in a guest, looks at its clock afterwards, and kills the supervisor of one that is
// paused: its machine must not stay for ever.
func TestVMPausedGuestsStandStill(t *testing.T) {
	const name = "still"
	dir, env := otherHome(t)
	msb := func(args ...string) result { return finish(t, command(t, env, args...)) }
	msb("run", "--vm", "qemu", "-q", "-d", "--name", name, "--max-duration", "1h", "--", "sh", "-c", `i=0; while :; do i=$((i+1)); echo $i; sleep .1; done`).want(t, 0, name+"\n")
	lines := func() int { return strings.Count(msb("logs", name).out, "\n") }
	eventually(t, "it counts", func() bool { return lines() > 3 })
	msb("pause", name).want(t, 0, name+"\n")
	if got := msb("ls"); !strings.Contains(got.out, "paused") {
		t.Errorf("%s%s", got.out, got.err)
	}
	if got := msb("exec", name, "--", "true"); got.code == 0 || !strings.Contains(got.err, "msb resume") {
		t.Errorf("a command ends with %d: %s", got.code, got.err)
	}
	before := lines()
	msb("exec", name, "--", "true") // some time
	msb("stats", "--no-stream", name)
	if after := lines(); after != before {
		t.Errorf("paused at %d, it counted on to %d", before, after)
	}
	msb("resume", name).want(t, 0, name+"\n")
	eventually(t, "it counts on", func() bool { return lines() > before })
	msb("exec", name, "--", "true").want(t, 0, "")

	msb("pause", name).want(t, 0, name+"\n")
	var run struct {
		Supervisor, VMM struct {
			PID int `json:"pid"`
		}
	}
	b, err := os.ReadFile(filepath.Join(dir, "sandboxes", name, "run.json"))
	if err != nil || json.Unmarshal(b, &run) != nil || run.VMM.PID == 0 {
		t.Fatalf("%v: %s", err, b)
	}
	if err := unix.Kill(run.Supervisor.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the end of its machine", func() bool {
		_, err := os.Stat("/proc/" + strconv.Itoa(run.VMM.PID) + "/exe")
		return err != nil
	})
	msb("start", name).want(t, 0, name+"\n")
	var st sandbox.Status
	if err := json.Unmarshal([]byte(msb("inspect", name).out), &st); err != nil || st.Paused {
		t.Errorf("%v: after its supervisor was killed it is %+v", err, st)
	}
	msb("rm", "-f", name).want(t, 0, name+"\n")
}
