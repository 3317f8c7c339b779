//go:build linux && !(vmtest && amd64)

package agentd

import (
	"os"
	"testing"
)

// TestMain lets the test's own program be the agent's programs, as agentd is.
func TestMain(m *testing.M) {
	if code, ok := RunOwnProgram(); ok {
		os.Exit(code)
	}
	os.Exit(m.Run())
}
