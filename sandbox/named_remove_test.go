package sandbox

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/policies"
)

// TestI1_RemovalsAreLogged in a log that outlives the sandbox.
func TestI1_RemovalsAreLogged(t *testing.T) {
	t.Parallel()
	h, log := newHome(t), filepath.Join(t.TempDir(), "audit")
	must(t, Create(t.Context(), Config{Home: h.Dir(), Name: "web", Disk: 64 << 20, Policy: policies.Default(), Image: "dir:" + t.TempDir(), Audit: log}))
	must(t, h.Remove(t.Context(), "web"))
	text, err := os.ReadFile(log)
	if err != nil || !strings.Contains(string(text), string(audit.SandboxRemove)) {
		t.Errorf("the log has %q, %v", text, err)
	}
}
