package commandfile

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
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

// TestI14_FilesThatComeMeanwhileStay: another process makes a file of the same name while a script is written. One of the two
// has it, and the other is refused.
func TestI14_FilesThatComeMeanwhileStay(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	lost := 0
	for i := range 50 {
		path := filepath.Join(dir, strconv.Itoa(i))
		done := make(chan error, 1)
		go func() { done <- Put(path, "script") }()
		for written := []string{}; len(written) == 0 && len(done) == 0; { // it has found the name free then
			var err error
			if written, err = filepath.Glob(filepath.Join(dir, prefix+"*")); err != nil {
				t.Fatal(err)
			}
		}
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err == nil {
			_, err = f.WriteString("theirs")
			err = errors.Join(err, f.Close())
		}
		refused := <-done
		want := "theirs"
		if err != nil {
			want = Begin + "script"
		}
		if b, readErr := os.ReadFile(path); readErr != nil || string(b) != want || (err == nil) != (refused != nil) {
			t.Fatalf("it holds %q, want %q; theirs: %v, the script: %v", b, want, err, refused)
		}
		if err == nil {
			lost++
		}
	}
	if left, err := filepath.Glob(filepath.Join(dir, prefix+"*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	t.Logf("of 50 scripts, %d came too late", lost)
}
