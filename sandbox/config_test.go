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
