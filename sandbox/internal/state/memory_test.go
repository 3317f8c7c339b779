package state

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// savedMemory writes one.
func savedMemory(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "memory-0123456789abcdef")
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	must(t, err)
	w, err := NewMemoryWriter(f, &MemoryHead{Created: time.Unix(1, 0), Key: []byte("key")}, int64(len(content)))
	must(t, err)
	_, err = io.WriteString(w, content)
	must(t, errors.Join(err, w.Finish()))
	if _, err := w.Write([]byte("x")); err == nil {
		t.Error("more than the memory is written")
	}
	must(t, f.Close())
	return path
}

// TestDamagedMemoriesGiveNotTheirLastBytes, whatever is changed in them: no machine runs with one. The contrast is one as it was written.
func TestDamagedMemoriesGiveNotTheirLastBytes(t *testing.T) {
	t.Parallel()
	const content = "the state of a machine"
	read := func(b []byte) (string, error) {
		path := filepath.Join(t.TempDir(), "memory")
		must(t, os.WriteFile(path, b, 0o600))
		m, err := OpenMemory(path)
		if err != nil {
			return "", err
		}
		defer func() { _ = m.Close() }()
		text, err := io.ReadAll(m)
		return string(text), err
	}
	good, err := os.ReadFile(savedMemory(t, content))
	must(t, err)
	if text, err := read(good); text != content || err != nil {
		t.Errorf("as it was written: %q, %v", text, err)
	}
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 1
		if text, err := read(bad); err == nil || text == content {
			t.Fatalf("byte %d of %d is another: %q, %v", i, len(good), text, err)
		}
	}
	for n := range len(good) {
		if text, err := read(good[:n]); err == nil || text == content {
			t.Fatalf("%d bytes of %d: %q, %v", n, len(good), text, err)
		}
	}
	for _, c := range [][2]string{{`"version":1`, `"version":2`}, {`{"version"`, `{"later":1,"version"`}} {
		if text, err := read(bytes.Replace(good, []byte(c[0]), []byte(c[1]), 1)); !errors.Is(err, ErrMemoryDamaged) || text != "" {
			t.Errorf("with %s: %q, %v", c[1], text, err)
		}
	}
}

// TestOnlyMemoriesAreRemoved from beside a disk, and not the one that is kept.
func TestOnlyMemoriesAreRemoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const kept, gone = "memory-00000000000000aa", "memory-00000000000000ab"
	others := []string{"memory-notes", "memory-00000000000000ABC", "upper.ext4", kept}
	for _, name := range append([]string{gone}, others...) {
		must(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	must(t, RemoveMemories(dir, kept))
	all, err := os.ReadDir(dir)
	must(t, err)
	if len(all) != len(others) {
		t.Errorf("left: %v, want %v", all, others)
	}
	must(t, RemoveMemories(filepath.Join(dir, "none"), ""))
	path := filepath.Join(dir, kept)
	m := &SavedMemory{path: path}
	must(t, m.Take())
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what was taken is there: %v", err)
	}
}

// TestI14_NamedDirectoriesHoldMsbsFilesOnly: others are no reason to remove, and only half-written ones are swept.
func TestI14_NamedDirectoriesHoldMsbsFilesOnly(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		mode os.FileMode
		ok   bool
	}{
		ControlSock: {os.ModeSocket, true}, PeerSock: {0, false}, StoredFile: {0, true}, EndFile: {os.ModeSymlink, false}, CaFile: {os.ModeNamedPipe, false}, "notes": {0, false},
	} {
		if _, ok := NamedForm(name, c.mode); ok != c.ok {
			t.Errorf("%s of the mode %s: %t", name, c.mode, ok)
		}
	}
	home := t.TempDir()
	dir := filepath.Join(home, NamedDir, "web")
	must(t, os.MkdirAll(dir, 0o700))
	for _, name := range []string{StoredFile, LockFile, ".sandbox.json123", "notes"} {
		must(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	must(t, RemoveHalfWritten(dir))
	var left []string
	all, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range all {
		left = append(left, e.Name())
	}
	if strings.Join(left, " ") != "lock notes sandbox.json" {
		t.Errorf("left: %q", left)
	}
	if err := RemoveNamed(home, "web"); err == nil {
		t.Error("a foreign file is removed")
	} else if all, err := os.ReadDir(dir); err != nil || len(all) != 3 {
		t.Errorf("left: %v, %v", all, err)
	}
	must(t, os.Remove(filepath.Join(dir, "notes")))
	must(t, RemoveNamed(home, "web"))
	if all, err := os.ReadDir(filepath.Dir(dir)); err != nil || len(all) != 0 {
		t.Errorf("left: %v, %v", all, err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
