//go:build linux

package system

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// node is a character device.
type node struct {
	name         string
	major, minor uint32
	mode         uint32
	// optional nodes are made where agentd's own /dev has them: the driver is
	// there.
	optional bool
}

// devNodes are what container tools give, and what a machine of its own can
// give besides. Numbers from the kernel's admin-guide/devices.txt.
var devNodes = []node{
	{"null", 1, 3, 0o666, false},
	{"zero", 1, 5, 0o666, false},
	{"full", 1, 7, 0o666, false},
	{"random", 1, 8, 0o666, false},
	{"urandom", 1, 9, 0o666, false},
	{"tty", 5, 0, 0o666, false},
	{"fuse", 10, 229, 0o666, true},
	{"net/tun", 10, 200, 0o666, true},
	{"kvm", 10, 232, 0o666, true},
}

var devLinks = map[string]string{
	"fd":     "/proc/self/fd",
	"stdin":  "/proc/self/fd/0",
	"stdout": "/proc/self/fd/1",
	"stderr": "/proc/self/fd/2",
	"ptmx":   "pts/ptmx",
}

// populateDev fills an empty /dev: neither the machine's disks nor the agent's
// port appear in it.
func populateDev(dev string) error {
	for _, n := range devNodes {
		if _, err := os.Stat(filepath.Join("/dev", n.name)); n.optional && errors.Is(err, os.ErrNotExist) {
			continue
		}
		path := filepath.Join(dev, n.name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // /dev is for everybody
			return fmt.Errorf("make /dev: %w", err)
		}
		if err := unix.Mknod(path, unix.S_IFCHR|n.mode, int(unix.Mkdev(n.major, n.minor))); err != nil {
			return fmt.Errorf("make /dev/%s: %w", n.name, err)
		}
		if err := unix.Chmod(path, n.mode); err != nil {
			return fmt.Errorf("make /dev/%s: %w", n.name, err)
		}
	}
	for name, to := range devLinks {
		if err := os.Symlink(to, filepath.Join(dev, name)); err != nil {
			return fmt.Errorf("make /dev/%s: %w", name, err)
		}
	}
	for _, m := range []mount{
		{"devpts", "pts", "devpts", unix.MS_NOSUID | unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620,gid=5"},
		{"tmpfs", "shm", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777"},
		{"mqueue", "mqueue", "mqueue", noPrograms, ""},
	} {
		target := filepath.Join(dev, m.target)
		if err := os.Mkdir(target, 0o755); err != nil { //nolint:gosec // /dev is for everybody
			return fmt.Errorf("make /dev/%s: %w", m.target, err)
		}
		if err := unix.Mount(m.source, target, m.kind, m.flags, m.data); err != nil && m.kind != "mqueue" {
			return fmt.Errorf("mount /dev/%s: %w", m.target, err)
		}
	}
	return nil
}
