//go:build vmtest

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestVMFreedDiskSpaceComesBack deletes files in a sandbox while it runs, and right before it stops.
func TestVMFreedDiskSpaceComesBack(t *testing.T) {
	dir, env := otherHome(t)
	msb := func(args ...string) result { t.Helper(); return finish(t, command(t, env, args...)) }
	defer func() { _ = command(t, env, "rm", "--force", "web").Run() }() // after a failure
	disk := filepath.Join(dir, "sandboxes", "web", "upper.ext4")

	msb("create", "--vm", "qemu", "--no-net", "--disk", "10G", "web").want(t, 0, "web\n")
	fill := func(bytes int64) {
		t.Helper()
		line := fmt.Sprintf("yes $(printf %%1000d 0) | head -c %d > /f && sync && echo kept > /kept", bytes)
		msb("exec", "web", "--", "sh", "-c", line).want(t, 0, "")
	}
	const first, second = 64 << 20, 16 << 20
	msb("start", "-q", "web").want(t, 0, "web\n")
	fill(first)
	full := allocated(t, disk)
	if full < first {
		t.Fatalf("%d bytes are allocated after %d were written", full, first)
	}
	msb("exec", "web", "--", "sh", "-c", "rm /f; sync").want(t, 0, "")
	eventually(t, "the space of a file that was deleted", func() bool { return allocated(t, disk) < full-first*9/10 })

	fill(second)
	full = allocated(t, disk)
	msb("exec", "web", "--", "rm", "/f").want(t, 0, "")
	msb("stop", "web").want(t, 0, "web\n")
	if got := allocated(t, disk); full < second || got > full-second*9/10 {
		t.Errorf("%d bytes are allocated after the stop, %d before %d were deleted", got, full, second)
	}
	msb("start", "-q", "web").want(t, 0, "web\n")
	msb("exec", "web", "--", "cat", "/kept").want(t, 0, "kept\n")
	msb("rm", "-f", "web").want(t, 0, "web\n")
	nothingLeft(t, dir)
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

// TestVMDamagedCachesAreHealed damages the kernel and the agent's disk between runs. Package cachefile tests more damages.
func TestVMDamagedCachesAreHealed(t *testing.T) {
	dir, env := otherHome(t)
	run := func() {
		t.Helper()
		vmCommand(t, command(t, env, runArgs([]string{"-q", "--no-net", "--", "echo", "alive"})...)).want(t, 0, "alive\n")
	}
	run()
	whole := map[string][]byte{}
	for _, pattern := range []string{"kernel/*.elf", "guest/*.ext4"} {
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil || len(found) != 1 {
			t.Fatalf("%s: %v, %v", pattern, found, err)
		}
		if whole[found[0]], err = os.ReadFile(found[0]); err != nil {
			t.Fatal(err)
		}
	}
	for name, damage := range map[string]func(path string, bytes int) error{
		"zeroes": func(path string, bytes int) error {
			return errors.Join(os.Chmod(path, 0o600), os.WriteFile(path, make([]byte, bytes), 0), os.Chmod(path, 0o400))
		},
		"a directory": func(path string, _ int) error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o700)) },
	} {
		for path, content := range whole {
			if err := damage(path, len(content)); err != nil {
				t.Fatal(name, err)
			}
		}
		run()
		for path, content := range whole {
			if got, err := os.ReadFile(path); err != nil || string(got) != string(content) {
				t.Errorf("%s, %s: %d bytes (%v) after a run, want the %d of before", path, name, len(got), err, len(content))
			}
		}
	}
}

// TestI13_VMFullHostsDamageNoDisk: what a guest believes written must not be lost, and a start writes to its disk.
func TestI13_VMFullHostsDamageNoDisk(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	_, env := otherHome(t)
	got := vmCommand(t, inNamespace(t, env, `mkdir -p "$MSB_HOME" && mount -t tmpfs -o mode=0700,size=160m none "$MSB_HOME" || exit 1
		"$1" create -q --vm qemu --no-net --disk 64M web && "$1" start -q web && "$1" exec web -- sh -c 'echo kept >/kept; sync' && "$1" stop web || exit 1
		dd if=/dev/zero of="$MSB_HOME/images/filler" bs=64k 2>/dev/null
		"$1" start -q web; echo "full: $?"
		rm "$MSB_HOME/images/filler"
		"$1" start -q web && "$1" exec web -- cat /kept && "$1" stop web`, self))
	if want := "web\nweb\nweb\nfull: 117\nweb\nkept\nweb\n"; got.code != 0 || got.out != want || !strings.Contains(got.err, "16 MiB") {
		t.Errorf("%+v, want %q", got, want)
	}
}

// TestVMDamagedDisksAreReportedAtStart: directories of the disk become zeros, as a host's full disk can leave them.
func TestVMDamagedDisksAreReportedAtStart(t *testing.T) {
	dir, env := otherHome(t)
	msb := func(args ...string) result { t.Helper(); return finish(t, command(t, env, args...)) }
	defer func() { _ = command(t, env, "rm", "--force", "web").Run() }() // after a failure
	msb("create", "--vm", "qemu", "--no-net", "--disk", "64M", "web").want(t, 0, "web\n")
	msb("start", "-q", "web").want(t, 0, "web\n")
	msb("stop", "web").want(t, 0, "web\n")
	path := filepath.Join(dir, "sandboxes", "web", "upper.ext4")
	if out, err := exec.Command("e2fsck", "-fy", path).CombinedOutput(); err != nil && !strings.Contains(string(out), "recovering journal") { // which would restore the blocks
		t.Fatalf("%v: %s", err, out)
	}
	disk, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const block = 4096
	for at := 0; at < len(disk); at += block {
		b := disk[at : at+block]
		// A directory begins with "." of 12 bytes and ".." (Linux, Documentation/filesystems/ext4/directory.rst). Those
		// right below the top, which is inode 2, stay.
		if string(b[4:9]) == "\x0c\x00\x01\x02." && string(b[18:22]) == "\x02\x02.." && b[12] > 2 {
			clear(b)
		}
	}
	if err := os.WriteFile(path, disk, 0o600); err != nil {
		t.Fatal(err)
	}
	got := msb("start", "-q", "web")
	if got.code == 0 || !strings.Contains(got.err, "damaged") || !strings.Contains(got.err, "e2fsck") {
		t.Errorf("%+v", got)
	}
	msb("rm", "-f", "web").want(t, 0, "web\n")
	nothingLeft(t, dir)
}
