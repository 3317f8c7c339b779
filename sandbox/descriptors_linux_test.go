//go:build !vmtest

package sandbox

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/sandbox/internal/state"
)

// TestSupervisorsRaiseTheirDescriptorLimit: a published port takes a descriptor for each connection, and shells start
// programs with a soft limit of 1024. Not parallel: it forks, and changes this process's limit.
func TestSupervisorsRaiseTheirDescriptorLimit(t *testing.T) {
	const low = 1024
	var before unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &before))
	if before.Max <= low {
		t.Skipf("the hard limit is %d", before.Max)
	}
	h, root := newHome(t), t.TempDir()
	must(t, os.WriteFile(filepath.Join(root, "file"), nil, 0o600))
	must(t, Create(t.Context(), operation{Home: h.Dir(), Root: root, Name: "web"}.config()))
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: low, Max: before.Max}))
	sb, err := StartNamed(t.Context(), "web", StartOptions{Home: h.Dir()})
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &before))
	must(t, err)
	must(t, sb.Close())
	var r state.RunRecord
	must(t, state.ReadJSON(namedPath(h, "web"), state.InfoFile, &r))
	var got unix.Rlimit
	must(t, unix.Prlimit(r.Supervisor.PID, unix.RLIMIT_NOFILE, nil, &got))
	if got.Max != before.Max || got.Cur < got.Max-1 { // Go's runtime raises it, on some systems to one less
		t.Errorf("the supervisor has %d of %d descriptors", got.Cur, got.Max)
	}
	must(t, h.Stop(t.Context(), "web"))
	must(t, h.Remove(t.Context(), "web"))
}
