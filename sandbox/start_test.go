package sandbox

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/msb-project/msb/internal/vm"
)

// TestSupervisorsLeaveTheDirectory: a supervisor works in /, and finds its program and the libraries that were named relative to
// where its caller is. Not parallel: it sets variables.
func TestSupervisorsLeaveTheDirectory(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for _, tt := range []struct{ path, wantPath, lib, wantLib string }{
		{"/bin/msb", "/bin/msb", "", ""},
		{"./msb", filepath.Join(dir, "msb"), "", ""},
		{"bin/msb", filepath.Join(dir, "bin/msb"), "/opt/lib", "/opt/lib"},
		{"msb", "msb", "lib", filepath.Join(dir, "lib")}, // one that was not found on the PATH
		{"/bin/msb", "/bin/msb", "../lib", filepath.Join(filepath.Dir(dir), "lib")},
	} {
		t.Setenv(vm.LibDirEnv, tt.lib)
		cmd := &exec.Cmd{Path: tt.path}
		leaveDirectory(cmd)
		if cmd.Dir != "/" || cmd.Path != tt.wantPath {
			t.Errorf("%s: %s in %s, want %s", tt.path, cmd.Path, cmd.Dir, tt.wantPath)
		}
		got := "" // the last one counts
		for _, e := range slices.Backward(cmd.Environ()) {
			if value, ok := strings.CutPrefix(e, vm.LibDirEnv+"="); ok {
				got = value
				break
			}
		}
		if got != tt.wantLib {
			t.Errorf("with %q it has %q, want %q", tt.lib, got, tt.wantLib)
		}
	}
}
