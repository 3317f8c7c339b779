package state

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestI13_VolumesAreNotWrittenOnAFullDisk: ext4 loses what a full disk of the host refuses. Readers write nothing. The file
// systems are mounted in a mount namespace, which needs root or user namespaces.
func TestI13_VolumesAreNotWrittenOnAFullDisk(t *testing.T) {
	t.Parallel()
	const inside = "MSB_TEST_FULL_VOLUMES"
	if os.Getenv(inside) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), inside+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
		if os.Geteuid() != 0 {
			cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
			cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	for size, enough := range map[string]bool{"15m": false, "40m": true} {
		home := t.TempDir()
		if err := unix.Mount("tmpfs", home, "tmpfs", 0, "size="+size); err != nil {
			t.Fatal(err)
		}
		dir := VolumePath(home, "data")
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for _, file := range []string{LockFile, VolumeDisk} {
			if err := os.WriteFile(filepath.Join(dir, file), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		_, lock, err := AttachVolume(home, Volume{Name: "data", Guest: "/data"})
		switch {
		case enough && err != nil:
			t.Errorf("%s: %v", size, err)
		case enough:
			_ = lock.Close()
		case !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "16 MiB"):
			t.Errorf("%s: %v, want ENOSPC", size, err)
		}
		_, reader, err := AttachVolume(home, Volume{Name: "data", Guest: "/data", ReadOnly: true}) // the writer's lock is free
		if err != nil {
			t.Errorf("a reader, %s: %v", size, err)
		} else if err := reader.Close(); err != nil {
			t.Error(err)
		}
		if err := unix.Unmount(home, 0); err != nil {
			t.Error(err)
		}
	}
}
