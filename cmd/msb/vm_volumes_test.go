//go:build vmtest

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/sandbox"
)

// TestVMVolumes has one writer, then readers, of a volume, and a supervisor that is killed.
func TestVMVolumes(t *testing.T) {
	dir, env := otherHome(t)
	msb := func(args ...string) result { return finish(t, command(t, env, args...)) }
	msb("volume", "create", "--size", "64M", "data").want(t, 0, "data\n")
	msb("run", "--vm", "qemu", "-q", "-d", "--name", "writer", "-v", "data:/data", "--", "sleep", "1000").want(t, 0, "writer\n")
	msb("exec", "writer", "--", "sh", "-c", "echo kept > /data/note && dd if=/dev/urandom of=/data/big bs=1M count=20 2>/dev/null").want(t, 0, "")
	msb("volume", "ls", "-q").want(t, 0, "data\n")
	if got := msb("volume", "inspect", "data"); got.code != 0 || !strings.Contains(got.out, `"writer"`) {
		t.Errorf("volume inspect: %+v", got)
	}
	second := msb("run", "--vm", "qemu", "-q", "--no-net", "-v", "data:/data", "--", "true")
	if second.code != exitSandbox || !strings.Contains(second.err, "one sandbox may write") {
		t.Errorf("a second writer: %d, %s", second.code, second.err)
	}
	if reader := msb("run", "--vm", "qemu", "-q", "--no-net", "-v", "data:/data:ro", "--", "true"); reader.code != exitSandbox || !strings.Contains(reader.err, "writes to it") {
		t.Errorf("a reader beside a writer: %d, %s", reader.code, reader.err)
	}
	if got := msb("volume", "rm", "data"); got.code != exitSandbox {
		t.Errorf("removed while it is written to: %d, %s", got.code, got.err)
	}
	msb("stop", "writer").want(t, 0, "writer\n")
	full := usedBy(t, msb, "data")

	// Readers, both at once.
	for _, name := range []string{"one", "two"} {
		msb("run", "--vm", "qemu", "-q", "-d", "--name", name, "-v", "data:/data:ro", "--", "sleep", "1000").want(t, 0, name+"\n")
	}
	for _, name := range []string{"one", "two"} {
		msb("exec", name, "--", "cat", "/data/note").want(t, 0, "kept\n")
		if got := msb("exec", name, "--", "sh", "-c", "echo x > /data/x || blockdev --setrw /dev/vdd || mount -o remount,rw /data"); got.code == 0 {
			t.Errorf("%s writes to it", name)
		}
	}
	if got := msb("start", "writer"); got.code != exitSandbox {
		t.Errorf("a writer beside readers: %d, %s", got.code, got.err)
	}
	msb("stop", "one", "two").want(t, 0, "one\ntwo\n")
	msb("rm", "one", "two").want(t, 0, "one\ntwo\n")

	// What is deleted takes no space on the host.
	msb("start", "writer").want(t, 0, "writer\n")
	msb("exec", "writer", "--", "sh", "-c", "rm /data/big && sync && echo again > /data/again && sync").want(t, 0, "")
	var run struct{ Supervisor struct{ PID int } }
	raw, err := os.ReadFile(filepath.Join(dir, "sandboxes", "writer", "run.json"))
	if err == nil {
		err = json.Unmarshal(raw, &run)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(run.Supervisor.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	// The next writer gets it at once, and what was synced.
	msb("run", "--vm", "qemu", "-q", "--no-net", "-v", "data:/data", "--", "cat", "/data/note", "/data/again").want(t, 0, "kept\nagain\n")
	if now := usedBy(t, msb, "data"); now > full-16<<20 {
		t.Errorf("%d bytes are used after 20 MiB were deleted, %d before", now, full)
	}

	file := filepath.Join(t.TempDir(), "copy")
	if err := os.WriteFile(file, []byte("copied\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	msb("volume", "cp", file, "data:/").want(t, 0, "") // to the top
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	msb("volume", "cp", "data:/copy", file).want(t, 0, "")
	if b, err := os.ReadFile(file); err != nil || string(b) != "copied\n" {
		t.Errorf("%q, %v", b, err)
	}

	// A guest's link leads to no file of the sandbox that copies, which has none of the user's. The twins stay in the volume.
	msb("run", "--vm", "qemu", "-q", "--no-net", "-v", "data:/data", "--", "sh", "-c", "cd /data && mkdir d && ln -s /etc out && ln -s ../d d/in && ln -s /etc/passwd file").want(t, 0, "")
	for _, args := range [][]string{{"data:/out/passwd", file}, {"-L", "data:/file", file}, {file, "data:/out"}} {
		msb(append([]string{"volume", "cp"}, args...)...).says(t, exitOther, "leads out of it")
	}
	msb("volume", "cp", file, "data:/d/in/").want(t, 0, "")
	msb("volume", "cp", "data:/d/in/copy", file).want(t, 0, "")
	link := filepath.Join(t.TempDir(), "link")
	msb("volume", "cp", "data:/file", link).want(t, 0, "")
	if target, err := os.Readlink(link); err != nil || target != "/etc/passwd" {
		t.Errorf("the link is copied as %q, %v", target, err)
	}
	msb("volume", "cp", file, "data:/file").want(t, 0, "") // in the link's place
	msb("rm", "writer").want(t, 0, "writer\n")
	msb("volume", "prune", "-q").want(t, 0, "data\n")
	nothingLeft(t, dir)
}

func usedBy(t *testing.T, msb func(...string) result, name string) int64 {
	t.Helper()
	var v sandbox.VolumeStatus
	if err := json.Unmarshal([]byte(msb("volume", "inspect", name).out), &v); err != nil || v.Busy {
		t.Fatalf("%+v, %v", v, err)
	}
	return v.Used
}
