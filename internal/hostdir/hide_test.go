//go:build linux

package hostdir

import (
	"strings"
	"testing"
	"time"

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

// TestI15_LongPathsUncoverNothing: the guest moves a directory so far down that its path is too long to be told. While it is
// open, names in it are found without the path.
func TestI15_LongPathsUncoverNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir, map[string]string{"x/.aws/credentials": "value", "x/.aws/config": ""})
	g := newGuest(t, dir, Options{Writable: true, Hide: []string{"**/.aws/credentials"}})
	deep := uint64(rootID)
	for range maxPathBytes / (unix.NAME_MAX + 1) {
		deep = g.must(g.mkdir(deep, strings.Repeat("d", unix.NAME_MAX)))
	}
	aws := g.must(g.walk("x", ".aws"))
	now := time.Now()
	g.s.now = func() time.Time { return now }
	g.must(g.walk("x", ".aws", "config")) // the directory is open from here on
	if err := g.rename(rootID, "x", deep, "x", 0); err != nil {
		t.Fatal(err)
	}
	_, err := g.ask(opLookup, aws, name("credentials"))
	want(t, "a hidden file whose path is too long", err, unix.ENAMETOOLONG)
	want(t, "rename of it", g.rename(aws, "credentials", rootID, "shown", 0), unix.ENAMETOOLONG)
	if got := g.list(aws, opReaddirplus, 4096); len(got) > 2 {
		t.Errorf("listed %v", got)
	}
}
