package commandfile

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"
)

func TestHalfWrittenCommandsAreSwept(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "[dir]")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, script := range []string{"one\n", "two\n"} {
		past := time.Now().Add(-2 * grace)
		for name, at := range map[string]time.Time{prefix + "1": past, prefix + "2": time.Now(), ".msb-other": past} {
			path := filepath.Join(dir, name)
			if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Chtimes(path, at, at)); err != nil {
				t.Fatal(err)
			}
		}
		for name, text := range map[string]string{"notes": "mine", "half": Begin[:20], "whole": Begin + "x"} {
			path := filepath.Join(dir, prefix+name)
			if err := errors.Join(os.WriteFile(path, []byte(text), 0o600), os.Chtimes(path, past, past)); err != nil {
				t.Fatal(err)
			}
		}
		if err := Put(filepath.Join(dir, "tool"), script); err != nil {
			t.Fatal(err)
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		b, err := os.ReadFile(filepath.Join(dir, "tool"))
		if want := []string{prefix + "2", prefix + "notes", ".msb-other", "tool"}; err != nil || string(b) != Begin+script || !slices.Equal(names, want) {
			t.Errorf("%q, %v; there are %q, want %q", b, err, names, want)
		}
	}
}

func TestScriptsOfOneNameComeOneAfterTheOther(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tool")
	for range 50 {
		var all sync.WaitGroup
		for _, script := range []string{"one", "two", "three"} {
			all.Go(func() {
				if err := Put(path, script); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if b, err := os.ReadFile(path); err != nil || !slices.Contains([]string{Begin + "one", Begin + "two", Begin + "three"}, string(b)) {
			t.Fatalf("%q, %v", b, err)
		}
		if err := Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}
