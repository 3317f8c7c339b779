//go:build linux

package vmtest

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/internal/vm"
)

// AgentPortCarriesBytesBothWays echoes a short and a long line.
func (s *Suite) AgentPortCarriesBytesBothWays(t *testing.T) {
	t.Helper()
	g := Boot(t, s.Backend, s.spec(t))
	if got := g.Ask(t, "echo hello there"); got != "hello there" {
		t.Errorf("echo answered %q, want %q", got, "hello there")
	}
	long := strings.Repeat("0123456789", 10_000)
	if got := g.Ask(t, "echo %s", long); got != long {
		t.Errorf("echo of %d bytes answered %d bytes", len(long), len(got))
	}
	if len(g.Confinement()) == 0 {
		t.Error("no confinement is reported")
	}
}

// DisksComeInOrder looks at three disks from inside.
func (s *Suite) DisksComeInOrder(t *testing.T) {
	t.Helper()
	spec := s.spec(t)
	spec.Disks = append(spec.Disks,
		vm.Disk{Path: rawDisk(t, "second", 1<<20), ID: "second"},
		vm.Disk{Path: rawDisk(t, "third", 2<<20), ID: "third", ReadOnly: true})
	g := Boot(t, s.Backend, spec)
	for i, want := range []struct{ id, sectors, readOnly string }{{"root", "", "1"}, {"second", "2048", "0"}, {"third", "4096", "1"}} {
		dev := "/sys/block/vd" + string(rune('a'+i))
		if got := g.Ask(t, "read %s/serial", dev); s.Serials && got != want.id {
			t.Errorf("%s has the serial %q, want %q", dev, got, want.id)
		}
		if got := g.Ask(t, "read %s/size", dev); want.sectors != "" && got != want.sectors {
			t.Errorf("%s has %s sectors, want %s", dev, got, want.sectors)
		}
		if got := g.Ask(t, "read %s/ro", dev); got != want.readOnly {
			t.Errorf("%s has ro %q, want %q", dev, got, want.readOnly)
		}
	}
	if got := g.Ask(t, "readdev /dev/vdc"); got != "third" {
		t.Errorf("vdc begins with %q, want %q", got, "third")
	}
}

// ReadOnlyDiskIsOpenedForReadingOnly writes both kinds of disk from inside and
// looks at the files from outside.
func (s *Suite) ReadOnlyDiskIsOpenedForReadingOnly(t *testing.T) {
	t.Helper()
	spec := s.spec(t)
	writable, readOnly := rawDisk(t, "before", 1<<20), rawDisk(t, "before", 1<<20)
	spec.Disks = append(spec.Disks, vm.Disk{Path: writable, ID: "rw"}, vm.Disk{Path: readOnly, ID: "ro", ReadOnly: true})
	g := Boot(t, s.Backend, spec)
	if got := g.Ask(t, "writedev /dev/vdb after"); got != "written" {
		t.Errorf("writing the writable disk answered %q", got)
	}
	if got := g.Ask(t, "writedev /dev/vdc after"); !strings.HasPrefix(got, "error:") {
		t.Errorf("writing the read-only disk answered %q, want an error", got)
	}
	for path, want := range map[string]string{writable: "after", readOnly: "before"} {
		if got := head(t, path, len(want)); got != want {
			t.Errorf("%s begins with %q, want %q", path, got, want)
		}
	}
	// The guest's kernel need not honour the read-only flag; what holds against
	// one that doesn't is how QEMU opened the file.
	if mode := openMode(t, g.PID(), readOnly); mode != unix.O_RDONLY {
		t.Errorf("the read-only disk is open with mode %#o, want O_RDONLY", mode)
	}
	if mode := openMode(t, g.PID(), writable); mode != unix.O_RDWR {
		t.Errorf("the writable disk is open with mode %#o, want O_RDWR", mode)
	}
}

// DiscardFreesHostSpace fills a part of a disk and gives it back: it is a hole in
// the host's file then.
func (s *Suite) DiscardFreesHostSpace(t *testing.T) {
	t.Helper()
	const filled = 4 << 20
	disk := rawDisk(t, "", 8<<20)
	spec := s.spec(t)
	spec.Disks = append(spec.Disks, vm.Disk{Path: disk, ID: "rw"})
	g := Boot(t, s.Backend, spec)
	if got := g.Ask(t, "fill /dev/vdb %d", filled); got != "filled" {
		t.Fatal(got)
	}
	if got := allocated(t, disk); got < filled {
		t.Fatalf("%d bytes are allocated after %d were written", got, filled)
	}
	if got := g.Ask(t, "discard /dev/vdb %d", filled); got != "discarded" {
		t.Fatalf("discard: %s", got)
	}
	// Room for the block that was zeroed, and the host's own.
	if got := allocated(t, disk); got > filled/16 {
		t.Errorf("%d bytes are allocated on the host after all were discarded", got)
	}
}

// allocated is how much of a file the host's disk holds, in bytes.
func allocated(t *testing.T, path string) int64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Blocks * 512
}

func head(t *testing.T, path string, n int) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, n)
	if _, err := io.ReadFull(f, b); err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// openMode returns the access mode that a process has a file open with.
func openMode(t *testing.T, pid int, path string) int {
	t.Helper()
	want, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil || len(fds) == 0 {
		t.Fatalf("descriptors of %d: %v (%v)", pid, fds, err)
	}
	for _, fd := range fds {
		if got, err := os.Stat(fd); err != nil || !os.SameFile(got, want) {
			continue
		}
		info, err := os.ReadFile(strings.Replace(fd, "/fd/", "/fdinfo/", 1))
		if err != nil {
			t.Fatal(err)
		}
		var flags int
		if _, rest, ok := strings.Cut(string(info), "flags:"); !ok {
			t.Fatalf("fdinfo has no flags: %s", info)
		} else if _, err := fmt.Sscanf(rest, "%o", &flags); err != nil {
			t.Fatal(err)
		}
		return flags & unix.O_ACCMODE
	}
	t.Fatalf("process %d has %s not open", pid, path)
	return 0
}
