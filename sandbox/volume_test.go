package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox/internal/state"
)

func TestI14_NamesOfVolumesAreOneWord(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	for _, name := range []string{"", ".", "..", "../x", "a/b", "/etc", ".hidden", "-rf", "a\nb", "a\x00", "é", "\x1b[2J", strings.Repeat("a", 64)} {
		if err := h.Volumes().Create(name, 0); !errors.Is(err, ErrVolumeName) || KindOf(err) != KindSandbox || strings.ContainsAny(err.Error(), "\n\x00\x1b") {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{"a", "Data_1.old", strings.Repeat("a", 63)} {
		if err := h.Volumes().Create(name, 16<<20); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestVolumesAreSparseAndUnique(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	must(t, h.Volumes().Create("data", 1<<30))
	if err := h.Volumes().Create("data", 1<<30); !errors.Is(err, ErrExists) {
		t.Error(err)
	}
	all, err := h.Volumes().List()
	must(t, err)
	if len(all) != 1 || all[0].Size != 1<<30 || all[0].Used > 64<<20 || all[0].Busy || all[0].Problem != "" {
		t.Errorf("%+v", all)
	}
	if _, err := h.Volumes().Inspect("nosuch"); !errors.Is(err, ErrNoVolume) {
		t.Error(err)
	}
	must(t, h.Volumes().Remove("data"))
	if err := h.Volumes().Remove("data"); !errors.Is(err, ErrNoVolume) {
		t.Error(err)
	}
	if entries, err := os.ReadDir(filepath.Join(h.Dir(), state.VolumesDir)); err != nil || len(entries) != 0 {
		t.Errorf("%v, %v is left", err, entries)
	}
}

// TestI13_VolumesHaveOneWriter takes locks as supervisors do. A lock that nobody holds is free, however its
// holder went.
func TestI13_VolumesHaveOneWriter(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	must(t, h.Volumes().Create("data", 16<<20))
	reader, err := state.LockVolume(h.Dir(), "data", true)
	must(t, err)
	second, err := state.LockVolume(h.Dir(), "data", true)
	must(t, err)
	if _, err := state.LockVolume(h.Dir(), "data", false); !errors.Is(err, ErrVolumeBusy) {
		t.Errorf("a writer beside readers: %v", err)
	}
	if err := h.Volumes().Remove("data"); !errors.Is(err, ErrVolumeBusy) {
		t.Errorf("removed under readers: %v", err)
	}
	must(t, errors.Join(reader.Close(), second.Close()))
	writer, err := state.LockVolume(h.Dir(), "data", false)
	must(t, err)
	for _, shared := range []bool{true, false} {
		if _, err := state.LockVolume(h.Dir(), "data", shared); !errors.Is(err, ErrVolumeBusy) {
			t.Errorf("beside a writer, shared %v: %v", shared, err)
		}
	}
	if v, err := h.Volumes().Inspect("data"); err != nil || !v.Busy {
		t.Errorf("%+v, %v", v, err)
	}
	time.AfterFunc(200*time.Millisecond, func() { _ = writer.Close() }) // as a machine that is about to go
	_, lock, err := state.AttachVolume(h.Dir(), Volume{Name: "data", Guest: "/data"})
	must(t, err)
	must(t, lock.Close())
}

// TestVolumesHaveTheirPlaces asks the check itself, since callers of the command line clean paths before.
func TestVolumesHaveTheirPlaces(t *testing.T) {
	t.Parallel()
	at := func(places ...string) error {
		var c Config
		for i, guest := range places {
			c.Volumes = append(c.Volumes, Volume{Name: string(rune('a' + i)), Guest: guest})
		}
		return c.checkVolumes()
	}
	for _, guest := range []string{"", "data", "./data", "/data/", "/data/../proc", "/data/.", "//data", "/a//b", "/", "/proc", "/proc/x", "/sys", "/dev/shm"} {
		if err := at(guest); !errors.Is(err, ErrVolume) || !strings.Contains(err.Error(), "/data") {
			t.Errorf("at %q: %v", guest, err)
		}
	}
	if err := at("/data", "/data"); !errors.Is(err, ErrVolume) {
		t.Errorf("two at one place: %v", err)
	}
	if err := at("/data", "/data/b", "/srv/proc"); err != nil {
		t.Error(err)
	}
	four := []string{"/a", "/b", "/c", "/d"}
	if err := at(four[:MaxVolumes]...); err != nil {
		t.Errorf("%d volumes: %v", MaxVolumes, err)
	}
	if err := at(four[:MaxVolumes+1]...); !errors.Is(err, ErrVolume) {
		t.Errorf("%d volumes: %v", MaxVolumes+1, err)
	}
}

func TestVolumesOfSandboxesStay(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	must(t, h.Volumes().Create("data", 16<<20))
	must(t, h.Volumes().Create("free", 16<<20))
	must(t, h.Volumes().Create("busy", 16<<20))
	machine, err := state.LockVolume(h.Dir(), "busy", true)
	must(t, err)
	must(t, aNamed(t, h, "web"))
	st, err := loadStored(h, "web")
	must(t, err)
	st.Volumes = []Volume{{Name: "data", Guest: "/data"}}
	must(t, state.WriteJSON(namedPath(h, "web"), state.StoredFile, st))
	if err := h.Volumes().Remove("data"); !errors.Is(err, ErrVolumeBusy) || !strings.Contains(err.Error(), "web") {
		t.Error(err)
	}
	names := func(all []VolumeStatus) (names []string) {
		for _, v := range all {
			names = append(names, v.Name)
		}
		return names
	}
	if would, err := h.Volumes().Prune(true); err != nil || !slices.Equal(names(would), []string{"free"}) {
		t.Errorf("%v, %v", would, err)
	}
	stored := namedPath(h, "web", state.StoredFile)
	good, err := os.ReadFile(stored)
	must(t, err)
	must(t, os.WriteFile(stored, []byte("{"), 0o600))
	if removed, err := h.Volumes().Prune(false); !errors.Is(err, ErrState) || len(removed) > 0 {
		t.Errorf("beside a sandbox whose volumes can't be told: %v, %v", removed, err)
	}
	must(t, os.WriteFile(stored, good, 0o600))
	must(t, h.Volumes().Create("unread", 16<<20)) // what it is can't be told, and its data may be wanted
	must(t, os.WriteFile(state.VolumePath(h.Dir(), "unread", state.VolumeFile), []byte("{"), 0o600))
	if removed, err := h.Volumes().Prune(false); err != nil || !slices.Equal(names(removed), []string{"free"}) {
		t.Errorf("%v, %v", removed, err)
	}
	must(t, machine.Close())
	must(t, h.Volumes().Remove("busy"))
	must(t, h.Volumes().Remove("unread")) // by name it goes
	if all, err := h.Volumes().List(); err != nil || !slices.Equal(names(all), []string{"data"}) || !slices.Equal(all[0].Sandboxes, []string{"web"}) {
		t.Errorf("%+v, %v", all, err)
	}
}

// TestI13_HalfMadeVolumesAreSwept: what is foreign in the directory stays, and what another command is making just now.
func TestI13_HalfMadeVolumesAreSwept(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	must(t, h.Volumes().Create("data", 16<<20))
	all := filepath.Join(h.Dir(), state.VolumesDir)
	old := time.Now().Add(-time.Hour)
	for _, name := range []string{".0123456789ab", ".ab0123456789", ".ba9876543210", "notes"} {
		must(t, os.Mkdir(filepath.Join(all, name), 0o700))
	}
	must(t, os.WriteFile(filepath.Join(all, ".ab0123456789", state.VolumeDisk), nil, 0o600))
	must(t, os.WriteFile(filepath.Join(all, ".0123456789ab", state.VolumeDisk), nil, 0o600))
	must(t, os.WriteFile(filepath.Join(all, ".ba9876543210", "letter"), nil, 0o600))
	for _, name := range []string{".0123456789ab", ".ba9876543210"} {
		must(t, os.Chtimes(filepath.Join(all, name), old, old))
	}
	_, err := OpenHome(h.Dir())
	must(t, err)
	entries, err := os.ReadDir(all)
	must(t, err)
	var left []string
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if want := []string{".ab0123456789", ".ba9876543210", "data", "notes"}; !slices.Equal(left, want) {
		t.Errorf("%v are left, want %v", left, want)
	}
}

func TestUnusableVolumesAreRefused(t *testing.T) {
	t.Parallel()
	many := make([]Volume, 0, MaxVolumes+1)
	for _, name := range []string{"a", "b", "c", "d"} {
		many = append(many, Volume{Name: name, Guest: "/" + name})
	}
	for name, cfg := range map[string]Config{
		"too many":          {Volumes: many},
		"one twice":         {Volumes: []Volume{{Name: "a", Guest: "/a"}, {Name: "a", Guest: "/b"}}},
		"two at one place":  {Volumes: []Volume{{Name: "a", Guest: "/a"}, {Name: "b", Guest: "/a"}}},
		"a relative place":  {Volumes: []Volume{{Name: "a", Guest: "a"}}},
		"the guest's own":   {Volumes: []Volume{{Name: "a", Guest: "/proc/x"}}},
		"the root":          {Volumes: []Volume{{Name: "a", Guest: "/"}}},
		"over a tmpfs":      {Volumes: []Volume{{Name: "a", Guest: "/a"}}, Tmpfs: []Tmpfs{{Path: "/a/b"}}},
		"under a directory": {Volumes: []Volume{{Name: "a", Guest: "/a/b"}}, Directories: []Directory{{Host: "/tmp", Guest: "/a"}}},
		"caches for one":    {Volumes: many[:MaxVolumes], Caches: []string{"pip"}},
		"a floor":           {Volumes: []Volume{{Name: "a", Guest: "/a"}}, Floor: policies.Default()},
		"a name":            {Volumes: []Volume{{Name: "../a", Guest: "/a"}}},
	} {
		if err := cfg.fill(); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	good := Config{Volumes: many[:MaxVolumes]}
	must(t, good.fill())
	cached := Config{Volumes: many[:MaxVolumes-1], Caches: []string{"pip"}}
	must(t, cached.fill())
	floored := Config{Volumes: many[:1], Floor: policies.Default(), OperatorVolumes: true}
	must(t, floored.fill())
}

// TestMissingVolumesAreMadeForWriters only: a reader of a misspelt name would find nothing, and nothing would say why.
func TestMissingVolumesAreMadeForWriters(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	for _, readOnly := range []bool{true, false} {
		cfg := Config{Volumes: []Volume{{Name: "data", Guest: "/data", ReadOnly: readOnly}}}
		if err := cfg.makeVolumes(h); errors.Is(err, ErrNoVolume) != readOnly {
			t.Errorf("read-only %v: %v", readOnly, err)
		}
		if all, err := h.Volumes().List(); err != nil || (len(all) == 0) != readOnly {
			t.Errorf("read-only %v: there are %+v, %v", readOnly, all, err)
		}
	}
}

// TestI14_VolumesWithOtherFilesStay: what msb didn't make is not removed, and the others are pruned all the same.
func TestI14_VolumesWithOtherFilesStay(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	for _, name := range []string{"data", "free"} {
		must(t, h.Volumes().Create(name, 16<<20))
	}
	letter := state.VolumePath(h.Dir(), "data", "letter")
	must(t, os.WriteFile(letter, nil, 0o600))
	must(t, os.WriteFile(state.VolumePath(h.Dir(), "file"), nil, 0o600)) // which is no volume
	if err := h.Volumes().Remove("data"); err == nil || !strings.Contains(err.Error(), "stays") {
		t.Errorf("removed: %v", err)
	}
	if removed, err := h.Volumes().Prune(false); err == nil || len(removed) != 1 || removed[0].Name != "free" {
		t.Errorf("pruned: %+v, %v", removed, err)
	}
	all, err := h.Volumes().List()
	if err != nil || len(all) != 1 || all[0].Name != "data" || all[0].Problem != "" || !there(t, letter) {
		t.Errorf("left: %+v, %v", all, err)
	}
	must(t, os.Remove(letter))
	must(t, h.Volumes().Remove("data"))
}

// TestVolumesAreFreeAfterALook: whoever looked at one, or was refused its removal, doesn't hold its lock.
func TestVolumesAreFreeAfterALook(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	cfg := Config{Volumes: []Volume{{Name: "data", Guest: "/data"}}}
	must(t, cfg.makeVolumes(h))
	must(t, aNamed(t, h, "web"))
	st, err := loadStored(h, "web")
	must(t, err)
	st.Volumes = cfg.Volumes
	must(t, state.WriteJSON(namedPath(h, "web"), state.StoredFile, st))
	if v, err := h.Volumes().Inspect("data"); err != nil || v.Busy || v.Size != DefaultDisk {
		t.Errorf("%+v, %v; want one of %d bytes", v, err, int64(DefaultDisk))
	}
	if err := h.Volumes().Remove("data"); !errors.Is(err, ErrVolumeBusy) {
		t.Errorf("%v, want ErrVolumeBusy", err)
	}
	lock, err := state.LockVolume(h.Dir(), "data", false)
	must(t, err)
	must(t, lock.Close())
	must(t, os.WriteFile(state.VolumePath(h.Dir(), "data", state.VolumeFile), []byte("{"), 0o600))
	if all, err := h.Volumes().List(); err != nil || len(all) != 1 || all[0].Problem == "" || !slices.Equal(all[0].Sandboxes, []string{"web"}) {
		t.Errorf("a damaged one: %+v, %v", all, err)
	}
}
