package vmtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Ext4 makes an ext4 image of sizeMiB at path out of the directory tree, without
// mounting it.
func Ext4(t testing.TB, tree, path string, sizeMiB int) {
	t.Helper()
	mke2fs, err := exec.LookPath("mke2fs")
	if err != nil {
		mke2fs = "/usr/sbin/mke2fs" // not on an ordinary user's path on Debian
	}
	cmd := exec.Command(mke2fs, "-q", "-F", "-t", "ext4", "-O", "^has_journal", "-m", "0",
		"-E", "root_owner=0:0", "-d", tree, path, fmt.Sprintf("%dM", sizeMiB))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("mke2fs (package e2fsprogs): %v\n%s", err, out)
	}
}

// rawDisk makes a sparse disk of size bytes that begins with text.
func rawDisk(t testing.TB, text string, size int64) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "disk.raw")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
	return path
}

// Tree makes a directory with the given files, path to host file, all executable,
// and the empty directories that a first process mounts on.
func Tree(t testing.TB, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for _, dir := range []string{"proc", "sys", "dev", "tmp", "run"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, source := range files {
		copyFile(t, source, filepath.Join(root, name))
	}
	return root
}

func copyFile(t testing.TB, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, data, 0o755); err != nil {
		t.Fatal(err)
	}
}
