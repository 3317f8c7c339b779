//go:build !vmtest

package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/msb-project/msb/image"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// aRunning starts a sandbox web of the fake guest's.
func aRunning(t *testing.T, change func(*Config)) *Home {
	t.Helper()
	h, root := newHome(t), t.TempDir()
	must(t, os.WriteFile(filepath.Join(root, "file"), nil, 0o600))
	c := operation{Home: h.Dir(), Root: root, Name: "web"}.config()
	if change != nil {
		change(&c)
	}
	must(t, Create(t.Context(), c))
	startsAgain(t, h)
	t.Cleanup(func() { _ = h.Stop(context.Background(), "web") })
	return h
}

func startsAgain(t *testing.T, h *Home) {
	t.Helper()
	sb, err := StartNamed(t.Context(), "web", StartOptions{Home: h.Dir()})
	must(t, err)
	must(t, sb.Close())
}

// greetedIn reads what a guest told of its start.
func greetedIn(t *testing.T, text []byte) (g greeted) {
	t.Helper()
	_, rest, ok := bytes.Cut(text, []byte(greetedBegin))
	told, _, ends := bytes.Cut(rest, []byte(greetedEnd))
	if !ok || !ends {
		t.Fatal("nobody tells how a machine was greeted")
	}
	must(t, json.Unmarshal(told, &g))
	return g
}

func says(t *testing.T, sb *Sandbox, argv ...string) []byte {
	t.Helper()
	var out bytes.Buffer
	if st, err := sb.Exec(t.Context(), ExecOptions{Argv: argv, Stdout: &out}); err != nil || st.Code != 0 {
		t.Fatalf("%q: %+v, %v", argv, st, err)
	}
	return out.Bytes()
}

// leavesNoRuns fails the test if the temporary sandbox of a verb is still there.
func leavesNoRuns(t *testing.T, h *Home) {
	t.Helper()
	if runs, err := os.ReadDir(filepath.Join(h.Dir(), state.RunsDir)); err != nil || len(runs) > 0 {
		t.Errorf("%v is left: %v", runs, err)
	}
}

// TestI18_CommitsOfSandboxesAreImages commits a sandbox that runs and one that is stopped. What makes the image is a machine
// on a copy of the disk, without a network, which forgets the sandbox's authority. Not parallel: it forks.
func TestI18_CommitsOfSandboxesAreImages(t *testing.T) {
	h := aRunning(t, func(c *Config) { c.Memory = 768 << 20 })
	ca, err := certificatesOf(namedPath(h, "web", state.CaFile))
	must(t, err)
	forget := ca
	for _, ref := range []string{"running:1", "stopped:1"} {
		if ref == "stopped:1" { // as a clone that has not been started
			must(t, h.Stop(t.Context(), "web"))
			st, err := loadStored(h, "web")
			must(t, err)
			st.ForgetCA = "of its parent\n"
			must(t, state.WriteJSON(namedPath(h, "web"), state.StoredFile, st))
			forget = st.ForgetCA + ca
		}
		made, err := h.Snapshots().Commit(t.Context(), "web", ref, StartOptions{})
		must(t, err)
		store, err := Store(h)
		must(t, err)
		img, err := store.Resolve(t.Context(), ref, image.Options{Pull: image.PullNever})
		must(t, err)
		if img.Digest != made.Digest {
			t.Errorf("%s: made %+v, in the cache is %+v", ref, made, img)
		}
		disk := partOf(t, img.DiskPath, 0, img.SizeBytes)
		g := greetedIn(t, disk)
		if g.Network || ca == "" || g.Forget != forget || len(g.Volumes)+len(g.Caches) > 0 {
			t.Errorf("%s: it was made by a machine with %+v", ref, g)
		}
		if slices.ContainsFunc(g.Disks, func(d string) bool { return strings.HasPrefix(d, namedPath(h, "web")) }) {
			t.Errorf("%s: its machine had the sandbox's own disk: %q", ref, g.Disks)
		}
		if bytes.Contains(disk, []byte("the sandbox's own")) {
			t.Errorf("%s: the image has the sandbox's machine-id", ref)
		}
		leavesNoRuns(t, h)
	}
}

// partOf reads a part of a disk, which may have a hole of many GiB.
func partOf(t *testing.T, disk string, at, size int64) []byte {
	t.Helper()
	f, err := os.Open(disk)
	must(t, err)
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.NewSectionReader(f, at, size))
	must(t, err)
	return b
}

// tokensOf are what the fake guest wrote to a disk.
func tokensOf(t *testing.T, disk string) []string {
	t.Helper()
	text, _, _ := bytes.Cut(partOf(t, disk, tokensAt, 1<<16), []byte{0})
	return strings.Fields(string(text))
}

// TestI18_CommittedCachesAreOfLaterStarts commits one cache and then all, starts the sandbox with them, and removes one. Each
// change is a new disk with what was on the last one. Not parallel: it forks.
func TestI18_CommittedCachesAreOfLaterStarts(t *testing.T) {
	h := aRunning(t, func(c *Config) { c.Caches, c.Env = []string{"pip", "go"}, []string{"HOME=/home/me"} })
	disk := func() string { return state.CachesPath(h.Dir(), generations(t, h)[0], state.CacheDisk) }
	holds := func(what string, all []CacheStatus, bytes map[string]int64, tokens ...string) {
		t.Helper()
		for _, c := range all {
			if c.Bytes != bytes[c.Name] || c.Sandbox != "web" || time.Since(c.Committed).Abs() > time.Hour {
				t.Errorf("%s: %+v", what, c)
			}
		}
		listed, err := h.Caches().List()
		must(t, err)
		if got := tokensOf(t, disk()); len(all) != len(bytes) || !slices.Equal(listed, all) || !slices.Equal(got, tokens) {
			t.Errorf("%s: %+v, listed are %+v, and the disk has %q", what, all, listed, got)
		}
		leavesNoRuns(t, h)
	}
	now := func() greeted {
		t.Helper()
		sb, err := h.Connect(t.Context(), "web")
		must(t, err)
		g := greetedIn(t, says(t, sb, "greeted"))
		must(t, sb.Close())
		return g
	}
	want := []string{"pip /home/me/.cache/pip", "go-build /home/me/.cache/go-build", "go-mod /home/me/go/pkg/mod"}
	if g := now(); g.CacheDisk || !slices.Equal(g.Caches, want) || len(g.Disks) != 3 {
		t.Errorf("before a commit: %+v", g)
	}
	all, err := h.Caches().Commit(t.Context(), "web", []string{"pip"}, StartOptions{})
	must(t, err)
	holds("pip", all, map[string]int64{"pip": 4 << 10}, "pip/pip")
	all, err = h.Caches().Commit(t.Context(), "web", nil, StartOptions{})
	must(t, err)
	holds("all", all, map[string]int64{"pip": 4 << 10, "go": 24 << 10}, "pip/pip", "pip/pip", "go-build/go-build", "go-mod/go-mod")
	must(t, h.Stop(t.Context(), "web"))
	startsAgain(t, h)
	in := disk()
	if g := now(); !g.CacheDisk || len(g.Disks) != 4 || g.Disks[3] != in+" true" {
		t.Errorf("with caches: %+v", g)
	}
	must(t, h.Caches().Remove(t.Context(), []string{"go"}, StartOptions{}))
	all, err = h.Caches().List()
	must(t, err)
	holds("without go", all, map[string]int64{"pip": 4 << 10}, "pip/pip", "pip/pip", "go-build/go-build", "go-mod/go-mod", "go-build-removed", "go-mod-removed")
	if _, err := os.Stat(in); err != nil {
		t.Errorf("the disk that a machine has is gone: %v", err)
	}
	must(t, h.Stop(t.Context(), "web"))
	if pruned, err := h.Caches().Prune(false); len(pruned) != 1 || err != nil {
		t.Errorf("once nobody has it: %v, %v", pruned, err)
	}
}

// TestVolumesAreOpenedAlone: what copies files of a volume has it and nothing else. Not parallel: it forks.
func TestVolumesAreOpenedAlone(t *testing.T) {
	h := newHome(t)
	must(t, h.Volumes().Create("data", 64<<20))
	sb, err := h.Volumes().Open(t.Context(), "data", true, StartOptions{})
	must(t, err)
	g := greetedIn(t, says(t, sb, "greeted"))
	if g.Network || !slices.Equal(g.Volumes, []string{VolumeRoot + " true"}) || !strings.HasSuffix(g.Disks[len(g.Disks)-1], "/data/"+state.VolumeDisk+" true") {
		t.Errorf("%+v", g)
	}
	if v, err := h.Volumes().Inspect("data"); err != nil || !v.Busy {
		t.Errorf("while it is open: %+v, %v", v, err)
	}
	must(t, sb.Close())
	if _, err := h.Volumes().Open(t.Context(), "none", false, StartOptions{}); !errors.Is(err, ErrNoVolume) {
		t.Errorf("one that isn't there: %v", err)
	}
}

// TestI18_FilesWithParentsPlaceholdersAreNamed asks a clone that runs, one that is stopped, and a sandbox that is no clone. Not
// parallel: it forks.
func TestI18_FilesWithParentsPlaceholdersAreNamed(t *testing.T) {
	h := newHome(t)
	must(t, Create(t.Context(), operation{Home: h.Dir(), Root: t.TempDir(), Name: "web"}.config()))
	if paths, more, err := h.ParentFiles(t.Context(), "web"); len(paths) > 0 || more || err != nil {
		t.Errorf("no clone: %q, %t, %v", paths, more, err)
	}
	st, err := loadStored(h, "web")
	must(t, err)
	st.ParentPlaceholders = map[string]string{"msb_second_placeholder": "B", "msb_first_placeholder": "A"}
	must(t, state.WriteJSON(namedPath(h, "web"), state.StoredFile, st))
	if _, _, err := h.ParentFiles(t.Context(), "web"); !errors.Is(err, ErrNotRunning) {
		t.Errorf("one that is stopped: %v", err)
	}
	t.Cleanup(func() { _ = h.Stop(context.Background(), "web") })
	startsAgain(t, h)
	tellsAndTakesChanges(t, h)
	paths, more, err := h.ParentFiles(t.Context(), "web")
	if err != nil || !more || !slices.Equal(paths, []string{"/has/msb_first_placeholder", "/has/msb_second_placeholder"}) {
		t.Errorf("a clone: %q, %t, %v", paths, more, err)
	}
}

// tellsAndTakesChanges asks a sandbox that runs for what it uses and changes it: what is refused changes nothing.
func tellsAndTakesChanges(t *testing.T, h *Home) {
	t.Helper()
	sb, err := h.Connect(t.Context(), "web")
	must(t, err)
	if u, err := sb.Usage(t.Context()); err != nil || u.Name != "web" || u.Disk != 64<<20 || u.DiskUsed == 0 || u.Resident == 0 || u.Guest == nil {
		t.Errorf("it uses %+v, %v", u, err)
	}
	must(t, sb.Close())
	bad, good := -1, 2
	if err := h.Update(t.Context(), "web", Changes{CPUs: &bad, Labels: map[string]string{"a": "b"}}); !errors.Is(err, ErrConfig) {
		t.Errorf("a change that can't be: %v", err)
	}
	must(t, h.Update(t.Context(), "web", Changes{CPUs: &good}))
	if st, err := loadStored(h, "web"); err != nil || st.CPUs != good || len(st.Labels) > 0 {
		t.Errorf("stored is %+v, %v", st, err)
	}
}
