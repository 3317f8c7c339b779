//go:build linux

package hostdir

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestI15_PathsAreHiddenAnywhere hides the end of a path at any depth: its last directory keeps its name, and those above it
// may be moved.
func TestI15_PathsAreHiddenAnywhere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir, map[string]string{".git/config": "x", ".git/HEAD": "x", "a/b/.git/config": "x", "a/config": "x", "..a/x": "x", "git/config": "x"})
	g := newGuest(t, dir, Options{Writable: true, Hide: []string{"**/.git/config", "..a/x"}})
	for path, hidden := range map[string]bool{".git/config": true, "a/b/.git/config": true, "..a/x": true, ".git/HEAD": false, "a/config": false, "git/config": false} {
		if _, err := g.walk(strings.Split(path, "/")...); (err == unix.ENOENT) != hidden || !hidden && err != nil { //nolint:errorlint // the guest's number
			t.Errorf("%s: %v, want hidden %t", path, err, hidden)
		}
	}
	want(t, "rename the directory above", g.rename(g.must(g.walk("a", "b")), ".git", rootID, "shown", 0), unix.EACCES)
	if err := g.rename(rootID, "a", rootID, "c", 0); err != nil {
		t.Errorf("rename of a directory further up: %v", err)
	}
	_, err := g.walk("c", "b", ".git", "config")
	want(t, "after it", err, unix.ENOENT)
}
