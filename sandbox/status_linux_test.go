//go:build !vmtest

package sandbox

import (
	"os"
	"path/filepath"
	"testing"
)

// TestStatusShowsTheMachineThatRuns: what an update changed of it holds from the next start on, and is shown apart until
// then. Not parallel: it forks.
func TestStatusShowsTheMachineThatRuns(t *testing.T) {
	h, root := newHome(t), t.TempDir()
	must(t, os.WriteFile(filepath.Join(root, "file"), nil, 0o600))
	cfg := operation{Home: h.Dir(), Root: root, Name: "web"}.config()
	cfg.CPUs, cfg.Memory = 1, 512<<20
	must(t, Create(t.Context(), cfg))
	start := func() {
		t.Helper()
		sb, err := StartNamed(t.Context(), "web", StartOptions{Home: h.Dir()})
		must(t, err)
		must(t, sb.Close())
	}
	shows := func(what string, cpus, nextCPUs int, memory, nextMemory int64) {
		t.Helper()
		one, err := h.Inspect("web")
		must(t, err)
		all, err := h.List()
		must(t, err)
		for _, s := range []*Status{one, &all[0]} {
			if s.CPUs != cpus || s.NextCPUs != nextCPUs || s.Memory != memory || s.NextMemory != nextMemory {
				t.Errorf("%s: %d (next %d), %d (next %d)", what, s.CPUs, s.NextCPUs, s.Memory, s.NextMemory)
			}
		}
	}
	start()
	shows("it runs", 1, 0, 512<<20, 0)
	cpus, memory := 2, int64(1<<30)
	must(t, h.Update(t.Context(), "web", Changes{CPUs: &cpus, Memory: &memory}))
	shows("updated", 1, 2, 512<<20, 1<<30)
	must(t, h.Stop(t.Context(), "web"))
	shows("stopped", 2, 0, 1<<30, 0)
	start()
	shows("started again", 2, 0, 1<<30, 0)
	must(t, h.Stop(t.Context(), "web"))
	must(t, h.Remove(t.Context(), "web"))
}
