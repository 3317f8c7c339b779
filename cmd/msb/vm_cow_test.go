//go:build vmtest

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/msb-project/msb/sandbox"
)

// TestVMCopyOnWriteDirectories works in a directory that is copied on write, and applies what it did.
func TestVMCopyOnWriteDirectories(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		t.Fatal(err)
	}
	src := filepath.Join(t.TempDir(), "src")
	for _, err := range []error{
		os.MkdirAll(src+"/dir/deep", 0o755), os.MkdirAll(src+"/old/er", 0o755),
		os.WriteFile(src+"/edit", []byte("one\ntwo\nthree\n"), 0o600), os.WriteFile(src+"/both", []byte("base\n"), 0o600),
		os.WriteFile(src+"/gone", []byte("gone\n"), 0o600), os.WriteFile(src+"/moved", []byte("moved\n"), 0o600),
		os.WriteFile(src+"/run", []byte("#!/bin/sh\n"), 0o600), os.WriteFile(src+"/dir/deep/f", []byte("f\n"), 0o600),
		os.WriteFile(src+"/old/er/f", []byte("old\n"), 0o600), os.WriteFile(src+"/.env", []byte("KEY=x\n"), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	home := []string{sandbox.EnvHome + "=" + filepath.Join(t.TempDir(), "home")}
	msb := func(args ...string) result { t.Helper(); return finish(t, command(t, home, args...)) }
	inside := func(script, want string) {
		t.Helper()
		msb("exec", "d", "--", "sh", "-c", "export HOME=/; cd /work; "+script).want(t, 0, want)
	}
	msb("create", "-q", "--vm", "qemu", "--no-net", "--disk", "1G", "--hide", ".env", "-v", src+":/work:cow", "d", "dir:"+programImage(t, git)).want(t, 0, "d\n")
	msb("start", "-q", "d").want(t, 0, "d\n")
	defer func() { _ = command(t, home, "rm", "--force", "d").Run() }()

	inside("ls; cat edit; stat -c %u:%g . edit", "both\ndir\nedit\ngone\nmoved\nold\nrun\none\ntwo\nthree\n0:0\n0:0\n")
	inside("echo 2 >> edit && rm gone && mv moved new && mkdir made && echo x > made/x && busybox chmod 700 run && ln -s edit link && rm -r old && mkdir old && cat both && echo guest >> both", "base\n")
	inside("mkdir .git && mkdir .git/hooks && echo 'echo run' > .git/hooks/pre-commit; echo all: > Makefile", "")
	inside("ls", "Makefile\nboth\ndir\nedit\nlink\nmade\nnew\nold\nrun\n")
	// The host replaces a file that the guest has looked at.
	if err := os.WriteFile(src+"/tmp", []byte("of the host\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	inside("cat dir/deep/f", "f\n")
	if err := os.Rename(src+"/tmp", src+"/dir/deep/f"); err != nil {
		t.Fatal(err)
	}
	inside("cat dir/deep/f", "of the host\n")
	msb("stop", "d").want(t, 0, "d\n")
	msb("start", "-q", "d").want(t, 0, "d\n")
	inside("ls; cat edit", "Makefile\nboth\ndir\nedit\nlink\nmade\nnew\nold\nrun\none\ntwo\nthree\n2\n")
	if b, err := os.ReadFile(src + "/edit"); err != nil || string(b) != "one\ntwo\nthree\n" {
		t.Errorf("on the host: %q, %v", b, err)
	}
}
