//go:build vmtest

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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
	repo := func(args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), git, append([]string{"-C", src + "/repo"}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("git %q: %s, %v", args, out, err)
		}
		return string(out)
	}
	commit := []string{"-c", "user.name=x", "-c", "user.email=x@example.com", "commit", "-q", "-a", "-m", "one"}
	if err := os.MkdirAll(src+"/repo", 0o755); err != nil {
		t.Fatal(err)
	}
	repo("init", "-q")
	if err := os.WriteFile(src+"/repo/f", []byte("one\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	repo("add", "f")
	repo(commit...)
	home := []string{sandbox.EnvHome + "=" + filepath.Join(t.TempDir(), "home")}
	msb := func(args ...string) result { t.Helper(); return finish(t, command(t, home, args...)) }
	inside := func(script, want string) {
		t.Helper()
		msb("exec", "d", "--", "sh", "-c", "export HOME=/; cd /work; "+script).want(t, 0, want)
	}
	msb("create", "-q", "--vm", "qemu", "--no-net", "--disk", "1G", "--hide", ".env", "-v", src+":/work:cow", "d", "dir:"+programImage(t, git)).want(t, 0, "d\n")
	msb("start", "-q", "d").want(t, 0, "d\n")
	defer func() { _ = command(t, home, "rm", "--force", "d").Run() }()

	inside("ls; cat edit; stat -c %u:%g . edit", "both\ndir\nedit\ngone\nmoved\nold\nrepo\nrun\none\ntwo\nthree\n0:0\n0:0\n")
	inside("echo 2 >> edit && rm gone && mv moved new && mkdir made && echo x > made/x && busybox chmod 700 run && ln -s edit link && rm -r old && mkdir old && cat both && echo guest >> both", "base\n")
	inside("mkdir .git && mkdir .git/hooks && echo 'echo run' > .git/hooks/pre-commit; echo all: > Makefile; cat .env 2>/dev/null; echo x > .env", "")
	inside("ls", "Makefile\nboth\ndir\nedit\nlink\nmade\nnew\nold\nrepo\nrun\n")
	// The host replaces a file that the guest has looked at.
	if err := os.WriteFile(src+"/tmp", []byte("of the host\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	inside("cat dir/deep/f", "f\n")
	if err := os.Rename(src+"/tmp", src+"/dir/deep/f"); err != nil {
		t.Fatal(err)
	}
	inside("cat dir/deep/f", "of the host\n")
	inside("echo guest > late", "")
	if err := os.WriteFile(src+"/late", []byte("of the host\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	inside("ls -l > /dev/null; cat late", "guest\n")
	msb("stop", "d").want(t, 0, "d\n")
	msb("start", "-q", "d").want(t, 0, "d\n")
	inside("ls; cat edit", "Makefile\nboth\ndir\nedit\nlate\nlink\nmade\nnew\nold\nrepo\nrun\none\ntwo\nthree\n2\n")
	has := func(file, want string) {
		t.Helper()
		if b, err := os.ReadFile(src + "/" + file); err != nil || string(b) != want {
			t.Errorf("%s on the host: %q, %v; want %q", file, b, err, want)
		}
	}
	has("edit", "one\ntwo\nthree\n")
	has("both", "base\n")
	has("gone", "gone\n")
	if err := os.WriteFile(src+"/both", []byte("of the host\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	listed := "/work, copied from " + src + ": 17 changes\n" +
		"added     /work/.env (2 B)\n          refused: the sandbox doesn't see the host's files of that name (--hide)\n" +
		"added     /work/.git (directory)\n" +
		"added     /work/.git/hooks (directory)\n          refused without --allow git: git runs it, or is steered by it\n" +
		"added     /work/.git/hooks/pre-commit (9 B)\n          refused without --allow git: git runs it, or is steered by it\n" +
		"added     /work/Makefile (5 B)\n          look at it: runs when you build or test\n" +
		"modified  /work/both (11 B)\n          refused without --allow changed: the host has changed it since the sandbox was shown it\n" +
		"modified  /work/edit (16 B)\n" +
		"deleted   /work/gone (5 B)\n" +
		"modified  /work/late (6 B)\n          refused without --allow changed: there is no record that the sandbox was shown the host's file\n" +
		"added     /work/link (link, to edit)\n" +
		"added     /work/made (directory)\n" +
		"added     /work/made/x (2 B)\n" +
		"deleted   /work/moved (6 B)\n" +
		"added     /work/new (6 B)\n" +
		"deleted   /work/old/er (directory)\n" +
		"deleted   /work/old/er/f (4 B)\n" +
		"mode      /work/run (0600 to 0700)\n          refused without --allow exec: it becomes executable\n"
	msb("diff", "--list", "d").want(t, 0, listed)
	msb("stop", "d").want(t, 0, "d\n")
	msb("diff", "--list", "d").want(t, 0, listed)
	msb("diff", "d", "/work/edit").want(t, 0, "/work, copied from "+src+": 1 change\nmodified  /work/edit (16 B)\n@@ -1,3 +1,4 @@\n one\n two\n three\n+2\n")
	msb("apply", "d", "old", "made/x").want(t, 0, "deleted   "+src+"/old/er/f\ndeleted   "+src+"/old/er\nadded     "+src+"/made\nadded     "+src+"/made/x\n")
	msb("apply", "d").says(t, exitDenied, "/work/.git/hooks/pre-commit: refused without --allow git", "/work/both: refused without --allow changed", "/work/run: refused without --allow exec")
	has("edit", "one\ntwo\nthree\n2\n")
	has("link", "one\ntwo\nthree\n2\n")
	has("made/x", "x\n")
	has("new", "moved\n")
	has(".env", "KEY=x\n")
	has("both", "of the host\n")
	has("dir/deep/f", "of the host\n")
	for _, gone := range []string{"gone", "moved", "old/er", ".git/hooks/pre-commit"} {
		if _, err := os.Lstat(src + "/" + gone); err == nil {
			t.Errorf("%s is on the host", gone)
		}
	}
	msb("apply", "--allow", "exec", "--allow", "changed", "d", "run", "both").want(t, 0, "modified  "+src+"/both\nmode      "+src+"/run\n")
	has("both", "base\nguest\n")
	// The guest goes on from what was applied.
	msb("start", "-q", "d").want(t, 0, "d\n")
	inside("echo 3 >> edit; cat edit link; rm link", "one\ntwo\nthree\n2\n3\none\ntwo\nthree\n2\n3\n")
	inside("cd repo && git status --short && echo two >> f && git -c user.name=x -c user.email=x@example.com commit -q -a -m two && git status --short && git log --format=%s | cat", "two\none\n")
	asked := terminalOf(t, command(t, home, "apply", "-i", "d", "edit", "link"))
	for i, answer := range []string{"n\n", "y\n"} { // of the link, which is removed, and of edit
		eventually(t, "the question", func() bool { return strings.Count(asked.out.String(), "apply it?") == i+1 })
		if _, err := asked.master.WriteString(answer); err != nil {
			t.Fatal(err)
		}
	}
	if got := asked.wait(t); got.code != 0 || !strings.Contains(got.out, "+3") {
		t.Errorf("%+v", got)
	}
	has("edit", "one\ntwo\nthree\n2\n3\n")
	has("link", "one\ntwo\nthree\n2\n3\n")
	if got := msb("apply", "--quiet", "d", "repo"); got.code != 0 {
		t.Errorf("%+v", got)
	}
	repo("fsck", "--strict")
	if got := repo("log", "--format=%s"); got != "two\none\n" {
		t.Errorf("the host's log is %q", got)
	}
	if got := repo("status", "--short"); got != "" {
		t.Errorf("the host's status is %q", got)
	}
	inside("cd repo && git config core.fsmonitor ./f", "")
	msb("apply", "d", "repo").says(t, exitDenied, "/work/repo/.git/config: refused without --allow git")
	msb("diff", "d", "/etc").says(t, exitOther, "nothing is changed there")
	msb("apply", "-i", "d").says(t, exitOther, "asks at the terminal")
	msb("create", "-q", "--vm", "qemu", "--no-net", "--disk", "1G", "plain").want(t, 0, "plain\n")
	msb("diff", "plain").says(t, exitOther, "no directory is copied on write in plain")
}
