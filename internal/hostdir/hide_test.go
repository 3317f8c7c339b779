//go:build linux

package hostdir

import (
	"os"
	"path/filepath"
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

// TestI15_OtherSpellingsAreHidden: a file system that ignores case, or dots at the end, opens the hidden file by another
// name, as a second link does here. The twin is a file of another name.
func TestI15_OtherSpellingsAreHidden(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir, map[string]string{".env": "value", "a/.git/config": "value", "key.pem": "value", "Upper.KEY": "value"})
	others := map[string]string{".ENV": ".env", ".Env.": ".env", ".env ": ".env", ".env::$DATA": ".env", ".e\u200cnv": ".env", "Key.PEM": "key.pem", "upper.key": "Upper.KEY", "a/.git/CONFIG": "a/.git/config"}
	for other, file := range others {
		if err := os.Link(filepath.Join(dir, file), filepath.Join(dir, other)); err != nil {
			t.Fatal(err)
		}
	}
	put(t, dir, map[string]string{"ENV": "", "env": "", "keypem": "", "a/config": "", "ENV~1": ""})
	g := newGuest(t, dir, Options{Writable: true, Hide: []string{".env", "*.pem", "Upper.KEY", "**/.git/config"}})
	for other := range others {
		_, err := g.walk(strings.Split(other, "/")...)
		want(t, other, err, unix.ENOENT)
	}
	for _, file := range []string{"ENV", "env", "keypem", "a/config", "ENV~1"} {
		g.must(g.walk(strings.Split(file, "/")...))
	}
	git := g.must(g.walk("a", ".git"))
	want(t, "rename by another spelling", g.rename(git, "CONFIG", rootID, "shown", 0), unix.EACCES)
	want(t, "rename of the directory above", g.rename(g.must(g.walk("a")), ".git", rootID, "shown", 0), unix.EACCES)
	g.s.shortNames = true // as on FAT
	for name, hidden := range map[string]bool{"ENV~1": true, "KEY~12.PEM": true, "PRIVAT~1.KEY": true, "~1": false, "longer~name~1": false, "a~1.b.c": false, "env~": false} {
		is, err := g.s.hidden(g.s.first, name)
		if is != hidden || err != nil {
			t.Errorf("%q as a short name: hidden %t, %v", name, is, err)
		}
	}
}
