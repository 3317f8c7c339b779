package sandbox

import (
	"errors"
	"os"
	"testing"

	"github.com/msb-project/msb/image"
	"github.com/msb-project/msb/policies"
)

// TestI14_SharedDirectoriesBecomeNoLinks has a guest put something else in the place of a directory that lies in another
// one of its own, or of another sandbox's, and the sandbox started again.
func TestI14_SharedDirectoriesBecomeNoLinks(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		alone   bool // proj is another sandbox's
		change  func(t *testing.T, at func(string) string)
		refused bool
	}{
		"nothing": {change: func(*testing.T, func(string) string) {}},
		"a link":  {change: func(t *testing.T, at func(string) string) { swap(t, at("proj/a/cache"), at("private")) }, refused: true},
		"a link by another sandbox": {alone: true, refused: true, change: func(t *testing.T, at func(string) string) {
			swap(t, at("proj/a/cache"), at("private"))
		}},
		"a link above": {change: func(t *testing.T, at func(string) string) { swap(t, at("proj/a"), at("private")) }, refused: true},
		"a link to where it is": {refused: true, change: func(t *testing.T, at func(string) string) {
			must(t, os.Rename(at("proj/a/cache"), at("proj/c2")))
			must(t, os.Symlink(at("proj/c2"), at("proj/a/cache")))
		}},
		"nothing there": {change: func(t *testing.T, at func(string) string) { must(t, os.RemoveAll(at("proj/a"))) }, refused: true},
		"another directory of the guest's": {change: func(t *testing.T, at func(string) string) {
			must(t, os.Rename(at("proj/a/cache"), at("proj/c2")))
			must(t, os.Mkdir(at("proj/a/cache"), 0o755))
		}},
	} {
		at := layout(t, []string{"proj/a/cache/x", "private/cache/key"}, nil)
		h := newHome(t)
		cfg := Config{Name: "n", Disk: 64 << 20, Policy: policies.Default(), Image: "dir:/nosuch", Directories: []Directory{{Host: at("proj"), Guest: "/work", Writable: true}, {Host: at("proj/a/cache"), Guest: "/cache", Writable: true}}}
		if tt.alone {
			cfg.Directories = cfg.Directories[1:]
		}
		must(t, cfg.fill())
		var err error
		cfg.Directories, err = cfg.realDirectories(h)
		must(t, err)
		lock, err := makeNamed(h, newStored("n", &cfg, &image.Image{Digest: "sha256:0"}, &Admission{}))
		must(t, err)
		must(t, lock.Close())
		tt.change(t, at)
		run, err := lockNamed(h, "n")
		must(t, err)
		if _, _, _, err = prepareStart(t.Context(), h, run, StartOptions{}); errors.Is(err, ErrDirectory) != tt.refused {
			t.Errorf("%s: %v, want refused %t", name, err, tt.refused)
		}
		must(t, run.lock.Close())
	}
}

// swap moves a directory away and puts a link in its place, as a guest can.
func swap(t *testing.T, dir, to string) {
	t.Helper()
	must(t, os.Rename(dir, dir+"2"))
	must(t, os.Symlink(to, dir))
}

// TestI14_GuestsLinksShareNothing gives directories again, as the next msb run and the next msb mcp do: a guest of the run
// before may have made the link. Its twins are links of the user's.
func TestI14_GuestsLinksShareNothing(t *testing.T) {
	t.Parallel()
	at := layout(t, []string{"proj/sub/x", "private/x"}, map[string]string{"proj/cache": "../private", "proj/in": "sub", "mine": "private", "to-proj": "proj", "proj/deep": "../mine"})
	for _, tt := range []struct {
		outer, inner string
		refused      bool // with the outer one writable
	}{
		{"proj", "proj/cache", true},
		{"to-proj", "to-proj/cache", true},
		{"proj", "to-proj/cache", true},
		{"proj", "proj/deep", true},
		{"proj", "proj/sub/../cache", true},
		{"proj", "proj/sub", false},
		{"proj", "proj/in", false}, // it has that one anyway
		{"proj", "private", false},
		{"proj", "mine", false},
		{"proj/sub", "proj/cache", false},
	} {
		for _, writable := range []bool{true, false} {
			c := &Config{Policy: policies.Default(), Directories: []Directory{{Host: at("") + "/" + tt.inner, Guest: "/a"}, {Host: at(tt.outer), Guest: "/b", Writable: writable}}}
			if err := c.checkDirectories(&Home{dir: "/nosuch/msb"}); errors.Is(err, ErrDirectory) != (tt.refused && writable) {
				t.Errorf("%s beside %s, writable %t: %v", tt.inner, tt.outer, writable, err)
			}
		}
	}
}
