//go:build !vmtest

package sandbox

import (
	"errors"
	"testing"
)

// TestStoppedSandboxesLackMounts: a copy below a directory of this machine, or in the guest's memory, would be hidden at the
// next start, or gone.
func TestStoppedSandboxesLackMounts(t *testing.T) {
	t.Parallel()
	h, shared := newHome(t), t.TempDir()
	cfg := operation{Home: h.Dir(), Name: "a", Root: t.TempDir()}.config()
	cfg.Directories, cfg.Tmpfs = []Directory{{Host: shared, Guest: "/work"}}, []Tmpfs{{Path: "/mem"}}
	must(t, Create(t.Context(), cfg))
	if err := CheckReach(h, "a", "/work/x"); !errors.Is(err, ErrCopy) {
		t.Errorf("before it is started: %v", err)
	}
	must(t, CheckReach(h, "a", "/workshop"))
	s, err := h.Review(t.Context(), "a", StartOptions{})
	must(t, err)
	for _, path := range []string{"/work", "/work/x", "/root/../work/", "/mem/.", "/mem/deep/x"} {
		if err := s.CheckReach(path); !errors.Is(err, ErrCopy) {
			t.Errorf("%s: %v", path, err)
		}
		if _, err := s.CopyFrom(t.Context(), path, t.TempDir(), CopyOptions{}); !errors.Is(err, ErrCopy) {
			t.Errorf("a copy from %s: %v", path, err)
		}
		if _, err := s.CopyTo(t.Context(), shared, path, CopyOptions{}); !errors.Is(err, ErrCopy) {
			t.Errorf("a copy to %s: %v", path, err)
		}
	}
	for _, path := range []string{"/", "/workshop", "/root/work", "/memory"} {
		must(t, s.CheckReach(path))
	}
	must(t, s.Close())
	if all, err := h.List(); err != nil || len(all) != 1 || all[0].Running {
		t.Errorf("after Close: %+v, %v", all, err)
	}
}
