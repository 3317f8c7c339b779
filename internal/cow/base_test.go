//go:build linux

package cow

import (
	"os"
	"path/filepath"
	"testing"
)

func record(t *testing.T, path string) *Recorder {
	t.Helper()
	r, err := OpenRecorder(path)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestBaseIsWhatWasShownFirst goes through two runs of a sandbox.
func TestBaseIsWhatWasShownFirst(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "base")
	one, two, three := File{Mode: 0o100644, Size: 1, Modified: -1}, File{Mode: 0o100644, Size: 2}, File{Mode: 0o100644, Size: 3}
	odd := "odd\n\x1b[31m\xff \"quoted\""
	r := record(t, path)
	r.Shown("kept", one, false)
	r.Shown("kept", two, false) // the guest may still go by the first
	r.Shown("changed", three, false)
	r.Shown("changed", one, true)
	r.Shown("changed", two, true)
	r.Shown("changed", two, false)
	r.Shown(odd, one, false)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	// A kill cut the last line short.
	if err := appendTo(path, "applied", two); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err == nil {
		_, err = f.WriteString("100644 7 7 7 7 \"cut")
	}
	if err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	r = record(t, path)
	r.Shown("kept", three, false) // looked up, so that there is no change above it
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	base, err := ReadBase(path)
	want := Base{"kept": three, "changed": one, odd: one, "applied": two}
	if err != nil || len(base) != len(want) {
		t.Fatalf("%d records, %v: %v", len(base), err, base)
	}
	for name, f := range want {
		if base[name] != f {
			t.Errorf("%q: %+v, want %+v", name, base[name], f)
		}
	}
}

func TestI11_RecordsAreBounded(t *testing.T) {
	t.Parallel()
	r := record(t, filepath.Join(t.TempDir(), "base"))
	r.bytes = maxRecordBytes - 3
	r.Shown("abc", File{Mode: 1}, false)
	r.Shown("d", File{Mode: 1}, false)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	base, err := ReadBase(r.out.Name())
	if _, ok := base["abc"]; err != nil || !ok || len(base) != 1 {
		t.Errorf("%v, %v", base, err)
	}
}

func TestI14_BaseFollowsNoLink(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Symlink(filepath.Join(dir, "elsewhere"), filepath.Join(dir, "base")); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenRecorder(filepath.Join(dir, "base")); err == nil {
		t.Error("records are written through a link")
	}
}
