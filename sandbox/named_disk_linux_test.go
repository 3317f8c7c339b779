package sandbox

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/msb-project/msb/image"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// aMade makes a sandbox from the image of a directory with one file, which it returns.
func aMade(t *testing.T) (h *Home, file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("as it was"), 0o600); err != nil {
		t.Fatal(err)
	}
	h = newHome(t)
	cfg := Config{Home: h.Dir(), Name: "web", Disk: 64 << 20, Policy: policies.Default(), Image: "dir:" + filepath.Dir(file)}
	if err := Create(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	return h, file
}

// startWith starts a sandbox with a program in the place of its supervisor, which ends at once.
func startWith(t *testing.T, h *Home, program string) error {
	t.Helper()
	_, err := StartNamed(t.Context(), "web", StartOptions{Home: h.Dir(), Program: program})
	if err == nil {
		t.Fatal("it started without a supervisor")
	}
	return err
}

// TestI13_ADiskStaysOnItsImage: the directory that a sandbox was made from has changed since, and its image is no longer
// in the cache. A disk on top of another one would be damaged.
func TestI13_ADiskStaysOnItsImage(t *testing.T) {
	t.Parallel()
	for _, changed := range []bool{true, false} {
		h, file := aMade(t)
		store, err := Store(h)
		if err != nil {
			t.Fatal(err)
		}
		all, err := store.List()
		if err != nil || len(all) != 1 {
			t.Fatalf("%+v, %v", all, err)
		}
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		if changed {
			if err := os.WriteFile(file, []byte("as it is!"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(os.Chtimes(file, info.ModTime(), info.ModTime()), os.RemoveAll(h.Images())); err != nil {
			t.Fatal(err)
		}
		if err := startWith(t, h, "/bin/false"); errors.Is(err, image.ErrNotCached) != changed {
			t.Errorf("the directory has changed: %v: %v", changed, err)
		}
	}
}

// TestI13_LivingVMMsBlockStartAndRemoval: the supervisor was killed and its VMM still lives, here a process that never
// ends by itself. Neither a second machine nor a removal may touch the disk before it has ended.
func TestI13_LivingVMMsBlockStartAndRemoval(t *testing.T) { // not parallel: from its fork to its exec a child holds others' locks
	mark, program := filepath.Join(t.TempDir(), "mark"), filepath.Join(t.TempDir(), "supervisor")
	if err := os.WriteFile(program, []byte("#!/bin/sh\ntouch "+mark+"\nexit 1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, try := range map[string]func(h *Home) error{
		"start": func(h *Home) error {
			_, err := startNamed(t.Context(), h, "web", StartOptions{Program: program})
			return err
		},
		"remove": func(h *Home) error { return h.Remove(t.Context(), "web") },
	} {
		must(t, state.UnlessGone(os.Remove(mark)))
		h, _ := aMade(t)
		vmm := exec.Command("sleep", "600")
		must(t, vmm.Start())
		err := state.WriteJSON(namedPath(h, "web"), state.InfoFile, state.RunRecord{VMM: state.Identify(vmm.Process.Pid)})
		h.gone = 50 * time.Millisecond
		if beside := try(h); !errors.Is(beside, ErrRunning) || there(t, mark) || !there(t, namedPath(h, "web", state.UpperDisk)) {
			t.Errorf("%s beside the old VMM: %v", name, beside)
		}
		h.gone = 0
		after := make(chan error, 1)
		go func() { after <- try(h) }() // it may have to wait
		_ = vmm.Process.Kill()
		_ = vmm.Wait()
		if after := <-after; err != nil || errors.Is(after, ErrRunning) || there(t, mark) != (name == "start") {
			t.Errorf("%s after the old VMM: %v, %v", name, after, err)
		}
	}
}

// TestI12_StateIsReplacedInOneRename: whoever has the file open reads all of the old state, as after a crash in the middle.
func TestI12_StateIsReplacedInOneRename(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	if err := aNamed(t, h, "web"); err != nil {
		t.Fatal(err)
	}
	path := namedPath(h, "web", state.StoredFile)
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	st, err := loadStored(h, "web")
	if err != nil {
		t.Fatal(err)
	}
	st.CPUs++
	if err := state.WriteJSON(namedPath(h, "web"), state.StoredFile, st); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(f); err != nil || string(got) != string(before) {
		t.Errorf("the old state reads %q, %v", got, err)
	}
	if now, err := loadStored(h, "web"); err != nil || now.CPUs != st.CPUs {
		t.Errorf("the new state: %+v, %v", now, err)
	}
}

// TestCreatedSandboxesDependOnNoDirectory: later commands run elsewhere. Not parallel: it changes the working directory.
func TestCreatedSandboxesDependOnNoDirectory(t *testing.T) {
	h, dir := newHome(t), realPath(t.TempDir())
	must(t, os.WriteFile(filepath.Join(dir, "p.toml"), []byte("version = 1\n"), 0o600))
	t.Chdir(dir)
	must(t, Create(t.Context(), Config{Home: h.Dir(), Name: "web", Image: "dir:" + t.TempDir(), PolicyFile: "p.toml", Audit: "audit", Pcap: "pcap", Volumes: []Volume{{Name: "data", Guest: "/data"}}}))
	must(t, h.Clone(t.Context(), "web", "other", CloneOptions{PolicyFile: "p.toml", Label: "mine"}))
	for name, want := range map[string]Status{
		"web":   {Audit: filepath.Join(dir, "audit"), Pcap: filepath.Join(dir, "pcap")},
		"other": {Audit: namedPath(h, "other", state.AuditLog), Label: "mine"},
	} {
		st, err := h.Inspect(name)
		must(t, err)
		if st.PolicyFile != filepath.Join(dir, "p.toml") || st.Audit != want.Audit || st.Pcap != want.Pcap || st.Label != want.Label || st.Disk != DefaultDisk || st.Used == 0 {
			t.Errorf("%s: %+v", name, st)
		}
	}
	if v, err := h.Volumes().Inspect("data"); err != nil || len(v.Sandboxes) != 2 {
		t.Errorf("its volume: %+v, %v", v, err)
	}
}

// TestI12_RefusedCreationsLeaveNothing: each differs in one thing from what is made.
func TestI12_RefusedCreationsLeaveNothing(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	for what, c := range map[string]struct {
		change func(*Config)
		want   error
	}{
		"learns":               {func(c *Config) { c.Learn = "/nosuch/p.toml" }, ErrConfig},
		"keeps its run":        {func(c *Config) { c.Keep = true }, ErrConfig},
		"no directory":         {func(c *Config) { c.Directories = []Directory{{Host: "/nosuch", Guest: "/d"}} }, ErrDirectory},
		"hidden by no pattern": {func(c *Config) { c.Hide = []string{"["} }, ErrDirectory},
		"nothing to read from": {func(c *Config) { c.Volumes = []Volume{{Name: "data", Guest: "/data", ReadOnly: true}} }, ErrNoVolume},
		"a path for a name":    {func(c *Config) { c.Name = "../web" }, ErrName},
	} {
		cfg := Config{Home: h.Dir(), Name: "web", Disk: 64 << 20, Image: "dir:" + t.TempDir()}
		c.change(&cfg)
		if err := Create(t.Context(), cfg); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", what, err, c.want)
		}
		if all, err := os.ReadDir(namedPath(h, "")); err != nil || len(all) > 0 {
			t.Errorf("%s: %v is left, %v", what, all, err)
		}
	}
}
