package sandbox

import (
	"errors"
	"fmt"
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

// TestI12_ContradictionsAreRefused: options that can't hold together, or that only another kind of sandbox has.
func TestI12_ContradictionsAreRefused(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		cfg Config
		say string // "" for a good one
	}{
		"temporary":                      {Config{Name: "web", AutoRemove: true}, ""},
		"temporary, and unnamed":         {Config{AutoRemove: true}, "AutoRemove"},
		"restarted":                      {Config{Name: "web", Restart: Restart{When: "always"}}, ""},
		"restarted, and unnamed":         {Config{Restart: Restart{When: "always"}}, "Restart"},
		"restarted, and temporary":       {Config{Name: "web", AutoRemove: true, Restart: Restart{When: "always"}}, "Restart"},
		"a pod":                          {Config{Pod: &Pod{}}, ""},
		"a pod with a name":              {Config{Name: "web", Pod: &Pod{}}, "Pod"},
		"a pod without a network":        {Config{NoNet: true, Pod: &Pod{}}, "Pod"},
		"a pod with ports":               {Config{Ports: []Port{{Guest: 80}}, Pod: &Pod{}}, "Pod"},
		"labels of the log":              {Config{AuditLabels: map[string]string{"team": "a"}}, ""},
		"a label of the log with a dash": {Config{AuditLabels: map[string]string{"-": "a"}}, "AuditLabels"},
	} {
		err := c.cfg.fill()
		if (err == nil) != (c.say == "") || err != nil && (!errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), c.say)) {
			t.Errorf("%s: %v; want %q", what, err, c.say)
		}
	}
	unknown := Config{Backend: "xen"}
	if err := unknown.fill(); err == nil || !strings.Contains(err.Error(), "xen") {
		t.Errorf("an unknown backend: %v", err)
	}
}

// TestI12_UnusableTmpfsAreRefused: a file system in memory that can't be mounted, would cover what the guest's agent needs,
// or would be covered itself.
func TestI12_UnusableTmpfsAreRefused(t *testing.T) {
	t.Parallel()
	many := func(n int) (all []Tmpfs) {
		for i := range n {
			all = append(all, Tmpfs{Path: fmt.Sprintf("/m%d", i)})
		}
		return all
	}
	most, more := uint32(0o7777), uint32(0o10000)
	work := []Directory{{Host: t.TempDir(), Guest: "/work"}}
	for what, c := range map[string]struct {
		cfg Config
		say string // "" for a good one
	}{
		"as many as may be":          {Config{Tmpfs: many(maxTmpfs)}, ""},
		"one more":                   {Config{Tmpfs: many(maxTmpfs + 1)}, "at most 16"},
		"a relative path":            {Config{Tmpfs: []Tmpfs{{Path: "tmp"}}}, "absolute path"},
		"a path that leads up":       {Config{Tmpfs: []Tmpfs{{Path: "/tmp/../proc"}}}, "absolute path"},
		"the guest's processes":      {Config{Tmpfs: []Tmpfs{{Path: "/proc"}}}, "the guest's own"},
		"the root":                   {Config{Tmpfs: []Tmpfs{{Path: "/"}}}, "the guest's own"},
		"a negative size":            {Config{Tmpfs: []Tmpfs{{Path: "/tmp", Size: -1}}}, "-1 bytes"},
		"all bits of a mode":         {Config{Tmpfs: []Tmpfs{{Path: "/tmp", Mode: &most}}}, ""},
		"a mode with a type":         {Config{Tmpfs: []Tmpfs{{Path: "/tmp", Mode: &more}}}, "mode 10000"},
		"two at one path":            {Config{Tmpfs: []Tmpfs{{Path: "/tmp"}, {Path: "/tmp"}}}, "two of them"},
		"below a directory":          {Config{Tmpfs: []Tmpfs{{Path: "/work/tmp"}}, Directories: work}, "would cover it"},
		"at the place of one":        {Config{Tmpfs: []Tmpfs{{Path: "/work"}}, Directories: work}, "would cover it"},
		"beside one of a like name":  {Config{Tmpfs: []Tmpfs{{Path: "/workshop"}}, Directories: work}, ""},
		"with a directory inside it": {Config{Tmpfs: []Tmpfs{{Path: "/work"}}, Directories: []Directory{{Host: "/h", Guest: "/work/in"}}}, ""},
	} {
		err := c.cfg.fill()
		if (err == nil) != (c.say == "") || err != nil && (!errors.Is(err, ErrTmpfs) || !strings.Contains(err.Error(), c.say)) {
			t.Errorf("%s: %v; want %q", what, err, c.say)
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
