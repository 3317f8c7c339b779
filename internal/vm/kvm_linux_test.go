package vm

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestKVMProbe(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	missing := filepath.Join(dir, "missing")
	plain := file("plain", "")
	// Root may open anything, so permission is refused by the opener.
	refuse := func(string, int, os.FileMode) (*os.File, error) { return nil, os.ErrPermission }
	tests := []struct {
		name string
		host kvmHost
		want error
	}{
		{"no device", kvmHost{device: missing}, ErrKVMMissing},
		{"no permission", kvmHost{device: "kvm", open: refuse}, ErrKVMPermission},
		{"not KVM at all", kvmHost{device: plain}, ErrKVMUnusable},
	}
	for _, tt := range tests {
		if err := tt.host.probe(); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
	}
}

func TestHasVirtualisation(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"processor\t: 0\nflags\t\t: fpu vme vmx sse\n": true,
		"flags : fpu svm\n":                            true,
		"flags : fpu sse\nflags : vmx\n":               false, // the first CPU counts
		"model name : vmx svm\nflags : fpu\n":          false,
		"flags : svm_lock avmx\n":                      false,
		"":                                             false,
	} {
		if got := hasVirtualisation(text); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}
