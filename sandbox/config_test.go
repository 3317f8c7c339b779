package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/msb-project/msb/image"
	"github.com/msb-project/msb/internal/vm"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// TestI12_BoundsOfAMachineAreExact: the largest and the smallest are taken, the next is an error that names the bound.
func TestI12_BoundsOfAMachineAreExact(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	for _, c := range []struct {
		cfg Config
		say string // "" for a good one
	}{
		{Config{}, ""},
		{Config{CPUs: vm.MaxCPUs}, ""},
		{Config{CPUs: vm.MaxCPUs + 1}, "give it 1 to"},
		{Config{CPUs: -1}, "give it 1 to"},
		{Config{Memory: vm.MinMemoryMiB * mib}, ""},
		{Config{Memory: vm.MinMemoryMiB*mib - 1}, "of memory"},
		{Config{Memory: vm.MaxMemoryMiB * mib}, ""},
		{Config{Memory: (vm.MaxMemoryMiB + 1) * mib}, "of memory"},
		{Config{Hostname: strings.Repeat("a", maxHostname)}, ""},
		{Config{Hostname: strings.Repeat("a", maxHostname+1)}, "host name"},
		{Config{Hostname: "web-1.local"}, ""},
		{Config{Hostname: "web_1"}, "host name"},
		{Config{Hostname: "-web"}, "host name"},
	} {
		cfg := c.cfg
		err := cfg.fill()
		if (err == nil) != (c.say == "") || err != nil && (!errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), c.say)) {
			t.Errorf("%d CPUs, %d bytes, %q: %v; want %q", c.cfg.CPUs, c.cfg.Memory, c.cfg.Hostname, err, c.say)
		}
	}
}

// TestRootOptionsStay: a sandbox with a name starts with the root that it was made with, again and again.
func TestRootOptionsStay(t *testing.T) {
	t.Parallel()
	mode := uint32(0o750)
	cfg := Config{Name: "web", ReadOnly: true, Tmpfs: []Tmpfs{{Path: "/run"}, {Path: "/scratch", Size: 1 << 20, Mode: &mode, Exec: true}}}
	must(t, cfg.fill())
	again, err := configOf(newStored("web", &cfg, &image.Image{Digest: "sha256:0"}, &Admission{}))
	if err != nil || !again.ReadOnly || !reflect.DeepEqual(again.Tmpfs, cfg.Tmpfs) {
		t.Errorf("%+v, %v", again, err)
	}
}

// TestI12_RecordsRefuseProcessFiles: /dev/stdout is the supervisor's own log there, and what was written to it was
// lost without a word.
func TestI12_RecordsRefuseProcessFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	must(t, os.Symlink("/dev/stdout", link))
	must(t, os.Symlink("link", filepath.Join(dir, "further")))
	must(t, os.Symlink(dir, filepath.Join(dir, "dir")))
	must(t, os.Symlink("loop", filepath.Join(dir, "loop")))
	for path, bad := range map[string]bool{
		"/dev/stdout": true, "/dev/stdin": true, "/dev/fd/63": true, "/proc/self/fd/1": true, link: true, filepath.Join(dir, "dir", "further"): true,
		"": false, "/dev/null": false, "file": false, filepath.Join(dir, "file"): false, filepath.Join(dir, "none", "file"): false, filepath.Join(dir, "loop"): false,
	} {
		for _, cfg := range []Config{{PolicyFile: path}, {Audit: path}, {Pcap: path}, {Learn: path}} {
			if err := cfg.fill(); errors.Is(err, ErrConfig) != bad || (err != nil) != bad {
				t.Errorf("%q in %+v: %v, want an error: %t", path, cfg, err, bad)
			}
		}
	}
}

// TestI8_VariablesNeverReplacePlaceholders: `-e TOKEN`, as users of other tools write, would take the value into the guest.
// Another variable passes (twin), and so does the placeholder itself.
func TestI8_VariablesNeverReplacePlaceholders(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	p := policies.Default()
	p.Secrets = []policies.Secret{{Name: "TOKEN", From: policies.Source{Kind: policies.FromEnv, Value: "TOKEN"}}}
	for _, env := range []string{"TOKEN=real", "TOKEN=", "TOKEN"} {
		cfg := Config{Home: h.Dir(), Name: "web", Policy: p, Trust: true, Env: []string{"A=1", env}}
		if err := Create(t.Context(), cfg); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "TOKEN") || strings.Contains(err.Error(), "real") {
			t.Errorf("create with %s: %v", env, err)
		}
	}
	s := &Sandbox{info: Info{Placeholders: map[string]string{"TOKEN": "msb_placeholder"}}}
	if _, err := s.Exec(t.Context(), ExecOptions{Argv: []string{"true"}, Env: []string{"TOKEN=real"}}); !errors.Is(err, ErrConfig) {
		t.Errorf("exec: %v", err)
	}
	if _, err := s.StartJob(t.Context(), "", ExecOptions{Argv: []string{"true"}, Env: []string{"TOKEN=real"}}); !errors.Is(err, ErrConfig) {
		t.Errorf("job: %v", err)
	}
	if err := noPlaceholder([]string{"A=1", "TOKEN=msb_placeholder"}, s.info.Placeholders); err != nil {
		t.Errorf("the placeholder itself: %v", err)
	}
	must(t, aNamed(t, h, "kept"))
	st, err := loadStored(h, "kept")
	must(t, err)
	st.Placeholders = s.info.Placeholders
	must(t, state.WriteJSON(namedPath(h, "kept"), state.StoredFile, st))
	if err := h.SetEnv(t.Context(), "kept", "TOKEN=real"); !errors.Is(err, ErrConfig) {
		t.Errorf("env set: %v", err)
	}
	must(t, h.SetEnv(t.Context(), "kept", "OTHER=real"))
}
