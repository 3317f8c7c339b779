package mcp

import (
	"io/fs"
	"testing"
	"testing/fstest"
	"time"
)

// TestOldOutputsMakeRoom: nothing else of the guest's goes, however old it is.
func TestOldOutputsMakeRoom(t *testing.T) {
	t.Parallel()
	at := func(n int) *fstest.MapFile { return &fstest.MapFile{ModTime: time.Unix(int64(n), 0)} }
	dir := fstest.MapFS{"notes.txt": at(0), "stdout-AAAAAAAA.txt.bak": at(0), "stdout-aaaaaaaa.txt": at(0), "stderr-ZZZZZZZZ.txt": at(2), "stdout-YYYYYYYY.txt": at(1)}
	for n := range maxOutputs - 2 {
		dir["stdout-BBBBBBB"+string(rune('A'+n))+".txt"] = at(10 + n)
	}
	gone := func() (names []string) {
		entries, err := dir.ReadDir(".")
		if err != nil {
			t.Fatal(err)
		}
		var all []fs.FileInfo
		for _, e := range entries {
			info, err := e.Info()
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, info)
		}
		for _, f := range surplus(all) {
			names = append(names, f.Name())
		}
		return names
	}
	if got := gone(); len(got) != 1 || got[0] != "stdout-YYYYYYYY.txt" {
		t.Errorf("of %d outputs go %v", maxOutputs, got)
	}
	delete(dir, "stdout-YYYYYYYY.txt")
	if got := gone(); len(got) != 0 {
		t.Errorf("of %d outputs go %v", maxOutputs-1, got)
	}
}
