package supervisor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestUsageOfAProcessIsRead(t *testing.T) {
	t.Parallel()
	// The name holds what looks like the fields behind it.
	line := "42 (a) R 1 (b) S 1 42 42 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 4 0 12345 1000000 300 18446744073709551615 1 1"
	cpu, resident := parseUsage([]byte(line))
	if cpu != 3*time.Second || resident == 0 || resident%300 != 0 {
		t.Errorf("%s and %d bytes", cpu, resident)
	}
	for _, broken := range []string{"", "42", "42 (a) S 1 2 3", strings.Repeat(")", 100)} {
		if cpu, resident := parseUsage([]byte(broken)); cpu != 0 || resident != 0 {
			t.Errorf("%q: %s, %d", broken, cpu, resident)
		}
	}
}

// TestUsageWaitsForNoGuest asks a supervisor whose guest tells no numbers.
func TestUsageWaitsForNoGuest(t *testing.T) {
	t.Parallel()
	p := newPlan(t, t.TempDir(), "web")
	s, info := superviseFake(t, &guestVM{}, p)
	if info == nil {
		t.Fatal(<-s.ended)
	}
	u := usageOf(t, s.supervisor)
	if u.Name != "web" || u.CPUs != 2 || u.Memory != 512<<20 || u.Guest != nil || u.Gateway != nil || u.Resident == 0 || u.Running <= 0 {
		t.Errorf("%+v", u)
	}
	s.cancel(errCallerGone)
	must(t, <-s.ended)
}

// TestDisksTakeTheBytesTheyTake: a sparse file takes less than its size, another about as much.
func TestDisksTakeTheBytesTheyTake(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "disk")
	must(t, os.WriteFile(path, make([]byte, 1<<20), 0o600))
	must(t, os.Truncate(path, 64<<20))
	if size, used := diskUsage(path); size != 64<<20 || used > 2<<20 {
		t.Errorf("a disk of 64 MiB with 1 MiB in it: %d and %d bytes", size, used)
	}
	if size, used := diskUsage(path + "-none"); size != 0 || used != 0 {
		t.Errorf("none: %d and %d bytes", size, used)
	}
}
