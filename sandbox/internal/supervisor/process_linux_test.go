package supervisor

import (
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// TestOnlyForeignDescriptorsAreClosed: what the caller's caller left open goes, what this process opened or was
// told to keep stays.
func TestOnlyForeignDescriptorsAreClosed(t *testing.T) {
	const last = 700 // above what the test's process has open
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	inherit := func(how, least int) int {
		t.Helper()
		fd, err := unix.FcntlInt(f.Fd(), how, least)
		if err != nil {
			t.Fatal(err)
		}
		return fd
	}
	given := inherit(unix.F_DUPFD, last)
	foreign := inherit(unix.F_DUPFD, last+1)
	own := inherit(unix.F_DUPFD_CLOEXEC, last+10)
	if given != last {
		t.Fatalf("descriptor %d was open", last)
	}
	if err := closeStrays(last); err != nil {
		t.Fatal(err)
	}
	isOpen := func(fd int) bool {
		_, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		return err == nil
	}
	if !isOpen(given) || isOpen(foreign) || !isOpen(own) {
		t.Errorf("open: the one given %v, the foreign one %v, an own one %v", isOpen(given), isOpen(foreign), isOpen(own))
	}
	_, _ = unix.Close(given), unix.Close(own)
}

// TestI8_GuardedMemoryIsHidden in a process of its own, since nothing undoes it: no core dump, and no other process of the user
// may read the memory.
func TestI8_GuardedMemoryIsHidden(t *testing.T) {
	t.Parallel()
	const guarded = "MSB_TEST_GUARDED"
	dumpable := func() int {
		t.Helper()
		n, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
		must(t, err)
		return n
	}
	if os.Getenv(guarded) == "" {
		c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestI8_GuardedMemoryIsHidden$")
		c.Env = append(os.Environ(), guarded+"=1")
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	if dumpable() == 0 {
		t.Fatal("it is hidden before it is guarded")
	}
	must(t, GuardMemory())
	var core unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_CORE, &core))
	if core != (unix.Rlimit{}) || dumpable() != 0 {
		t.Errorf("core limit %+v, dumpable %d", core, dumpable())
	}
}
