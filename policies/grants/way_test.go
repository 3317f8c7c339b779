package grants_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/msb-project/msb/policies/grants"
)

// TestI14_PathsAreFollowedLinkByLink follows paths as the kernel does, and
// lists each link on the way.
func TestI14_PathsAreFollowedLinkByLink(t *testing.T) {
	t.Parallel()
	top := realDir(t)
	put(t, top, "a/file", "", 0o600)
	put(t, top, "b/sub/x", "", 0o600)
	for link, to := range map[string]string{"b/one": "two", "b/two": "../a/file", "b/dir": filepath.Join(top, "b/sub"), "b/loop": "loop", "b/gone": "../c/none"} {
		if err := os.Symlink(to, filepath.Join(top, link)); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string][]string{
		"a/file":           {"a", "a/file"},
		"b/one":            {"b", "b/one", "b/two", "a", "a/file"},
		"b/dir/x":          {"b", "b/dir", "b", "b/sub", "b/sub/x"},
		"b/dir/../two":     {"b", "b/dir", "b", "b/sub", "b/two", "a", "a/file"},
		"b/gone":           {"b", "b/gone", "c"},
		"nosuch/x/../file": {"nosuch"},
	} {
		var got []string
		for _, at := range grants.Way(top + "/" + path) {
			if rel, err := filepath.Rel(top, at); err == nil && filepath.IsLocal(rel) && rel != "." {
				got = append(got, rel)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s goes by %q, want %q", path, got, want)
		}
	}
	if way := grants.Way(top + "/b/loop"); len(way) > 100 {
		t.Errorf("a loop has %d steps", len(way))
	}
	if way := grants.Way("/"); !slices.Equal(way, []string{"/"}) {
		t.Errorf("the top goes by %q", way)
	}
}

// TestI14_MountsAreComparedByIdentity has a link stand for a second mount, which a test can't make: another path to the
// same directory.
func TestI14_MountsAreComparedByIdentity(t *testing.T) {
	t.Parallel()
	top := realDir(t)
	file := put(t, top, "proj/conf/p.toml", "", 0o600)
	mount := filepath.Join(top, "mount")
	if err := os.Symlink("proj", mount); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]bool{mount: true, mount + "/conf": true, top + "/proj": true, top + "/pro": false, top: true} {
		if grants.Within(dir, file) != want {
			t.Errorf("%s in %s: %t", file, dir, !want)
		}
	}
}
