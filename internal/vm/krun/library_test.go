//go:build linux

package krun

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/msb-project/msb/internal/vm"
)

func TestVersionOf(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "libkrun.so.1.17.4"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "libkrun.so.1")
	if err := os.Symlink("libkrun.so.1.17.4", link); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		path    string
		symbols map[string]bool
		want    string
	}{
		{link, nil, "1.17.4"},
		{"/none/libkrun.so.1", map[string]bool{"krun_add_virtio_console_multiport": true}, "1.17.0 or newer"},
		{"/none/libkrun.so.1", map[string]bool{"krun_has_feature": true, "krun_add_virtiofs3": true}, "1.18.0 or newer"},
		{"/none/libkrun.so.1", nil, "unknown"},
	}
	for _, tt := range tests {
		if got := versionOf(tt.path, tt.symbols); got != tt.want {
			t.Errorf("%s %v: %q, want %q", tt.path, tt.symbols, got, tt.want)
		}
	}
}

func TestUnusableLibrariesAreRefused(t *testing.T) {
	t.Parallel()
	text := filepath.Join(t.TempDir(), "libkrun.so.1")
	if err := os.WriteFile(text, []byte("not a library"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := inspect(text); !errors.Is(err, vm.ErrLibkrunMissing) {
		t.Errorf("text file: %v, want ErrLibkrunMissing", err)
	}
	// Any other library lacks the functions, as an old libkrun lacks some.
	libc, err := vm.FindLibrary("libc.so.6", vm.ErrLibkrunMissing)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := inspect(libc); !errors.Is(err, vm.ErrLibkrunTooOld) {
		t.Errorf("libc: %v, want ErrLibkrunTooOld", err)
	}
}

func TestKVMIsLookedAtBeforeLibkrun(t *testing.T) {
	t.Parallel()
	b := New(Config{CacheDir: t.TempDir(), probeKVM: func() error { return vm.ErrKVMPermission }})
	if r := b.Probe(t.Context()); r.Usable || r.Note == "" {
		t.Errorf("probe without KVM: %+v", r)
	}
	if _, _, err := vm.Select(t.Context(), "krun", b); !errors.Is(err, vm.ErrNoBackend) {
		t.Errorf("select: %v, want ErrNoBackend", err)
	}
}
