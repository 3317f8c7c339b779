package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/Microsoft/hcsshim/ext4/tar2ext4"
)

// program is a static program for the parts: this test's own file would do,
// but a few bytes are enough.
func program(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path, []byte("\x7fELF of a kind"), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestAgentRootsAreReproducibleExt4(t *testing.T) {
	t.Parallel()
	path := program(t)
	var disks [2]bytes.Buffer
	for i := range disks {
		root, err := agentRoot(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := ext4(root, &disks[i]); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(disks[0].Bytes(), disks[1].Bytes()) {
		t.Error("the same input gave two disks")
	}
	if _, err := tar2ext4.ReadExt4SuperBlockReadSeeker(bytes.NewReader(disks[0].Bytes())); err != nil {
		t.Errorf("not an ext4: %v", err)
	}
}

func TestAgentsAboveBudgetAreRefused(t *testing.T) {
	t.Parallel()
	path, out := program(t), t.TempDir()
	if err := os.Truncate(path, maxAgentBytes+1); err != nil {
		t.Fatal(err)
	}
	if err := run(path, path, path, "amd64", out); err == nil {
		t.Error("it was packed")
	}
	if left, err := os.ReadDir(out); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestBusyboxShellFindsWget(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	from, err := os.ReadFile("/bin/busybox")
	if err != nil {
		t.Fatalf("%v: scripts/setup installs it, from Debian's busybox-static", err)
	}
	renamed, err := renameWget(from)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := renameWget(renamed); err == nil {
		t.Error("a busybox without wget was taken")
	}
	for name, text := range map[string][]byte{"busybox": renamed, "wget": []byte("#!/bin/sh\necho ours\n")} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "busybox"), "sh", "-c", "wget; env wget; echo x | xargs wget; which sh >/dev/null && busybox wftp 2>&1 | head -1; echo a | wc -l")
	cmd.Env = []string{"PATH=" + dir + ":/bin"}
	out, err := cmd.CombinedOutput()
	if want := "ours\nours\nours\n"; err != nil || !strings.HasPrefix(string(out), want) || !strings.HasSuffix(string(out), "\n1\n") {
		t.Errorf("the shell printed %q, %v; want %q and a line of each other applet", out, err, want)
	}
}

func TestBusyboxMustBeStatic(t *testing.T) {
	t.Parallel()
	if err := static("/bin/sh"); err == nil {
		t.Error("a program with a loader was taken for the builtin image")
	}
}
