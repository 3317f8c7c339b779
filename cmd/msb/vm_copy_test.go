//go:build vmtest

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/msb-project/msb/sandbox"
)

// TestVMCopiesGoBothWays tries msb cp with the rules that docker cp documents.
func TestVMCopiesGoBothWays(t *testing.T) {
	home := []string{sandbox.EnvHome + "=" + filepath.Join(t.TempDir(), "home")}
	dir := t.TempDir()
	msb := func(args ...string) result {
		t.Helper()
		c := command(t, home, args...)
		c.Dir = dir
		return finish(t, c)
	}
	inside := func(script, want string) { t.Helper(); msb("exec", "c", "--", "sh", "-c", script).want(t, 0, want) }
	msb("run", "--vm", "qemu", "-q", "--disk", "1G", "--name", "c", "-d").want(t, 0, "c\n")
	defer func() { _ = command(t, home, "rm", "--force", "c").Run() }()

	for _, err := range []error{
		os.MkdirAll(dir+"/src/deep", 0o755), os.WriteFile(dir+"/src/a", []byte("alpha"), 0o640),
		os.WriteFile(dir+"/src/deep/run", []byte("#!/bin/sh\necho ran\n"), 0o755), os.Symlink("a", dir+"/src/link"),
		os.WriteFile(dir+"/one:two", []byte("colon"), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	msb("cp", "src", "c:/root").want(t, 0, "")
	inside("cd /root/src && cat a && ./deep/run && readlink link && stat -c %u:%g:%a a", "alpharan\na\n0:0:640\n")
	msb("cp", "src", "c:/root/new").want(t, 0, "")
	msb("cp", "src/.", "c:/root/new").want(t, 0, "")
	inside("ls /root/new", "a\ndeep\nlink\n")
	msb("cp", "src/a", "c:/root/b").want(t, 0, "")
	msb("cp", "./one:two", "c:root/").want(t, 0, "")
	inside("cat /root/b '/root/one:two'", "alphacolon")
	msb("cp", "src/a", "c:/none/").says(t, exitOther, "/none/ does not exist")
	msb("cp", "src/a", "c:/none/x").says(t, exitOther, "no such file or directory")
	msb("cp", "src", "c:/root/b").says(t, exitOther, "/root/b is a file")
	msb("cp", "nosuch", "c:/root").says(t, exitOther, "nosuch")
	msb("cp", "c:/nosuch", ".").says(t, exitOther, "/nosuch")
	msb("cp", "src", "other").says(t, exitOther, "NAME:PATH")
	msb("cp", "src", "nobody:/").says(t, exitSandbox, "no such sandbox: nobody")

	inside("mkfifo /root/new/pipe; ln -s /etc/passwd /root/new/out; mkdir /root/new/shut; chmod 500 /root/new/shut; echo x > /root/new/shut/x", "")
	got := msb("cp", "c:/root/new", "back")
	if got.code != 0 || !strings.Contains(got.err, "left out") || !strings.Contains(got.err, "pipe") {
		t.Errorf("%+v", got)
	}
	if b, err := os.ReadFile(dir + "/back/deep/run"); err != nil || !strings.Contains(string(b), "echo ran") {
		t.Errorf("%q, %v", b, err)
	}
	if to, err := os.Readlink(dir + "/back/out"); err != nil || to != "/etc/passwd" {
		t.Errorf("%q, %v", to, err)
	}
	msb("cp", "c:/root/src/a", ".").want(t, 0, "")
	msb("cp", "c:/etc/hostname", "a").want(t, 0, "")
	if b, err := os.ReadFile(dir + "/a"); err != nil || string(b) != "c\n" {
		t.Errorf("%q, %v", b, err)
	}
	// Longer than what is on the way at once, by the transfer disk: the kernel counts what it moved.
	large := bytes.Repeat([]byte("msb copies 32 bytes in each line\n"), 9<<20/33)
	if err := os.WriteFile(dir+"/large", large, 0o600); err != nil {
		t.Fatal(err)
	}
	moved := `for d in /sys/block/vd*; do test "$(cat $d/serial)" = transfer && awk '{print ($3*512 > %[1]d) ($7*512 > %[1]d)}' $d/stat; done; true`
	inside(fmt.Sprintf(moved, 8<<20), "00\n")
	msb("cp", "large", "c:/root/large").want(t, 0, "")
	msb("cp", "c:/root/large", "back/large").want(t, 0, "")
	inside(fmt.Sprintf(moved, 8<<20), "11\n")
	if b, err := os.ReadFile(dir + "/back/large"); err != nil || !bytes.Equal(b, large) {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	inside("ln -s src /root/l", "")
	msb("cp", "-L", "c:/root/l", "followed").want(t, 0, "")
	if b, err := os.ReadFile(dir + "/followed/a"); err != nil || string(b) != "alpha" {
		t.Errorf("%q, %v", b, err)
	}

	tar := exec.CommandContext(t.Context(), "tar", "c", "-C", dir, "src")
	archive, err := tar.Output()
	if err != nil {
		t.Fatal(err)
	}
	in := command(t, home, "cp", "-", "c:/tmp")
	in.Stdin = bytes.NewReader(archive)
	finish(t, in).want(t, 0, "")
	inside("cat /tmp/src/a", "alpha")
	for _, from := range []string{"c:/tmp/src", "c:/root/l/", "c:/root/l/."} {
		list := exec.CommandContext(t.Context(), "tar", "t")
		list.Stdin = strings.NewReader(msb("cp", from, "-").out)
		if names, err := list.Output(); err != nil || !strings.Contains(string(names), "/deep/run\n") {
			t.Errorf("%s: %q, %v", from, names, err)
		}
	}
	msb("stop", "c").want(t, 0, "c\n")
	msb("cp", "src/a", "c:/root/stopped").want(t, 0, "")
	msb("cp", "c:/root/stopped", "from-stopped").want(t, 0, "")
	if b, err := os.ReadFile(dir + "/from-stopped"); err != nil || string(b) != "alpha" {
		t.Errorf("%q, %v", b, err)
	}
	msb("ls", "--format", "{{.running}}").want(t, 0, "false\n")

	run := func(args ...string) result {
		t.Helper()
		return msb(append([]string{"run", "--vm", "qemu", "-q"}, args...)...)
	}
	run("--copy", "src:/in/deep/dir", "--copy", "./one:two:/in/", "--", "sh", "-c", "cat /in/deep/dir/a '/in/one:two' && /in/deep/dir/deep/run").want(t, 0, "alphacolonran\n")
	run("--copy", "nosuch:/in", "--name", "n", "--", "true").says(t, exitOther, "--copy nosuch:/in", "there is no nosuch")
	msb("create", "--vm", "qemu", "-v", "./src:/work:cow", "--tmpfs", "/mem", "d").want(t, 0, "d\n")
	msb("cp", "d:/work/a", ".").says(t, exitOther, "of this machine", "msb start d")
	in = command(t, home, "cp", "-", "d:/mem")
	in.Stdin = bytes.NewReader(archive)
	finish(t, in).says(t, exitOther, "in the guest's memory", "msb start d")
	msb("ls", "-q").want(t, 0, "c\nd\n")
	run("--copy", "src", "--", "true").says(t, exitOther, "HOST:GUEST")
}
