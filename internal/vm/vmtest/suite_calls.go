//go:build linux

package vmtest

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/msb-project/msb/internal/vm"
	"github.com/msb-project/msb/internal/vm/runner"
)

// RecordEnv is "all" to have NeedsNoOtherCall print every call instead. Anything else asks for it where it takes minutes.
const RecordEnv = "MSB_RECORD_CALLS"

// NeedsNoOtherCall traces a full life of a guest for each way to end it, on a
// backend with the given recording: boot, clock, disks, link, console. It fails
// with every system call that is in no list of vm/runner and isn't expected: those
// that the VMM is known to try and do without.
func (s *Suite) NeedsNoOtherCall(t *testing.T, r *runner.Recording, expected func(runner.Refused) bool, ends ...string) {
	t.Helper()
	r.All = os.Getenv(RecordEnv) == "all"
	for _, end := range ends {
		s.live(t, end)
	}
	if r.All {
		for c, n := range r.Calls() {
			t.Logf("%s: %d times", c, n)
		}
		return
	}
	var unlisted []string
	for c, n := range r.Calls() {
		if !expected(c) {
			unlisted = append(unlisted, fmt.Sprintf("%s: %d times", c, n))
		}
	}
	slices.Sort(unlisted)
	if len(unlisted) > 0 {
		t.Errorf("the VMM made calls that are in no list:\n%s", strings.Join(unlisted, "\n"))
	}
}

// live boots a guest that uses every device, and ends it by a command or, if
// that is "kill", from outside.
func (s *Suite) live(t *testing.T, end string) {
	t.Helper()
	ours, theirs, err := runner.StreamPair("link")
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	spec := s.spec(t)
	spec.Disks = append(spec.Disks, vm.Disk{Path: rawDisk(t, "before", 1<<20), ID: "rw"}, vm.Disk{Path: rawDisk(t, "before", 1<<20), ID: "ro", ReadOnly: true})
	spec.Net = &vm.Net{FD: theirs, MAC: net.HardwareAddr{0x02, 0, 0, 0, 0, 1}}
	g := Boot(t, s.Backend, spec)
	checkClockSource(t, g)
	for _, step := range []struct{ say, want string }{
		{"writedev /dev/vdb after", "written"}, {"readdev /dev/vdc", "before"}, {"discard /dev/vdb 4096", "discarded"}, {"console 1000", "printed"},
	} {
		if got := g.Ask(t, "%s", step.say); got != step.want && !strings.Contains(got, "operation not supported") {
			t.Errorf("%s: %s, want %s", step.say, got, step.want)
		}
	}
	CheckFrames(t, g, ours, spec.Net.MAC)
	if end == "kill" {
		if err := g.Kill(); err != nil {
			t.Error(err)
		}
		return
	}
	g.tell(t, end)
	if err := g.Wait(t.Context()); err != nil {
		t.Errorf("the guest's end: %v", err)
	}
}
