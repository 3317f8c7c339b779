package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/msb-project/msb/sandbox/internal/state"
)

// TestI8_HomesAreTheUsersAlone: what OpenHome makes, no other user may look into. Not parallel: it changes
// the environment and the working directory.
func TestI8_HomesAreTheUsersAlone(t *testing.T) {
	root := t.TempDir()
	t.Setenv("HOME", root)
	t.Setenv(EnvHome, "")
	h, err := OpenHome("")
	if err != nil || h.Dir() != filepath.Join(root, ".msb") {
		t.Fatalf("%+v, %v", h, err)
	}
	run, err := newRun(h)
	must(t, err)
	defer func() { _ = run.lock.Close() }()
	dirs := []string{h.Dir(), h.Images(), h.Kernel(), h.Guest(), run.dir}
	for _, sub := range []string{state.RunsDir, state.KeptDir, state.NamedDir, state.SnapshotsDir} {
		dirs = append(dirs, filepath.Join(h.Dir(), sub))
	}
	for _, dir := range dirs {
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v", dir, info, err)
		}
	}
	t.Setenv(EnvHome, filepath.Join(root, "other"))
	if h, err := OpenHome(""); err != nil || h.Dir() != filepath.Join(root, "other") {
		t.Errorf("%s: %+v, %v", EnvHome, h, err)
	}
	if h, err := OpenHome(filepath.Join(root, "given")); err != nil || h.Dir() != filepath.Join(root, "given") {
		t.Errorf("one that is given: %+v, %v", h, err)
	}
	t.Chdir(root)
	if h, err := OpenHome("relative"); err != nil || h.Dir() != filepath.Join(root, "relative") { // the supervisor works elsewhere
		t.Errorf("a relative path: %+v, %v", h, err)
	}
}

// TestI12_HomesThatCannotBeAreNamed: a file in the place of the directory, or above it, and a link in the place of one of
// its directories, are errors that say what to do.
func TestI12_HomesThatCannotBeAreNamed(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	file("x")(t, filepath.Join(root, "file"))
	for _, path := range []string{filepath.Join(root, "file"), filepath.Join(root, "file", "below")} {
		if _, err := OpenHome(path); !errors.Is(err, ErrHome) || !strings.Contains(err.Error(), "is a file") || !strings.Contains(err.Error(), EnvHome) {
			t.Errorf("%s: %v", path, err)
		}
	}
	for _, sub := range []string{imagesDir, guestDir, state.RunsDir, state.KeptDir, state.NamedDir} {
		h := newHome(t)
		must(t, os.Remove(filepath.Join(h.Dir(), sub)))
		link(t.TempDir())(t, filepath.Join(h.Dir(), sub))
		if _, err := OpenHome(h.Dir()); !errors.Is(err, ErrHome) || !strings.Contains(err.Error(), "link") {
			t.Errorf("%s is a link: %v", sub, err)
		}
	}
}

// TestI13_OpeningSweepsEverything: what killed commands left in each directory of the home goes when the next command opens
// it.
func TestI13_OpeningSweepsEverything(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	aGeneration(t, h, "pip")
	must(t, h.Volumes().Create("data", 16<<20))
	must(t, h.Trust().Approve(filepath.Join(t.TempDir(), "p.toml"), nil))
	left := []string{
		filepath.Join(h.Dir(), state.RunsDir, "sb-0123456789ab"), filepath.Join(h.Dir(), state.NamedDir, ".0123456789ab"),
		filepath.Join(h.Dir(), state.VolumesDir, ".0123456789ab"), filepath.Join(h.Dir(), state.SnapshotsDir, "tmp", staging),
		state.CachesPath(h.Dir(), state.CacheWork),
	}
	for _, path := range left {
		dir(nil)(t, path)
	}
	_, err := OpenHome(h.Dir())
	must(t, err)
	for _, path := range left {
		if there(t, path) {
			t.Errorf("%s is left", path)
		}
	}
	if _, err := h.Volumes().Inspect("data"); err != nil {
		t.Errorf("a volume: %v", err)
	}
	if got := generations(t, h); len(got) != 1 {
		t.Errorf("caches: %v", got)
	}
}

// TestI13_KeptRunsAreMsbsAlone: what Config.Keep left is listed in the order of the ends and removed by its id. What else lies
// there is neither.
func TestI13_KeptRunsAreMsbsAlone(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	kept := h.KeptRuns()
	ended := []string{"sb-000000000002", "sb-000000000003", "sb-000000000001"}
	for i, id := range ended {
		dir(map[string]maker{"lock": file(""), "console.log": file("x")})(t, keptDir(h, id))
		at := time.Unix(int64(i+1)*1000, 0)
		must(t, os.Chtimes(keptDir(h, id), at, at))
	}
	precious := dir(map[string]maker{"precious": file("text")})
	for name, put := range map[string]maker{"photos": precious, "sb-0000000000": precious, "sb-00000000000a": file("x"), "sb-00000000000b": link(h.Images())} {
		put(t, keptDir(h, name))
	}
	all, err := kept.List()
	must(t, err)
	var ids []string
	for _, k := range all {
		ids = append(ids, k.ID)
	}
	if strings.Join(ids, " ") != strings.Join(ended, " ") {
		t.Errorf("listed: %v, want %v", ids, ended)
	}
	for _, id := range []string{"photos", "sb-0000000000", "../" + state.KeptDir + "/photos", "sb-00000000000f", ""} {
		if err := kept.Remove(id); !errors.Is(err, ErrNoSandbox) {
			t.Errorf("removing %q: %v, want ErrNoSandbox", id, err)
		}
	}
	file("x")(t, filepath.Join(keptDir(h, ended[0]), "notes.txt"))
	if err := kept.Remove(ended[0]); err == nil || !strings.Contains(err.Error(), "notes.txt") {
		t.Errorf("one with a file of the user's: %v", err)
	}
	must(t, kept.Remove(ended[1]))
	for name, want := range map[string]bool{ended[0]: true, ended[1]: false, ended[2]: true, "photos": true, "sb-0000000000": true} {
		if there(t, keptDir(h, name)) != want {
			t.Errorf("%s there: %v", name, !want)
		}
	}
}
