//go:build vmtest

package sandbox_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/msb-project/msb/internal/vm/vmtest"
	"github.com/msb-project/msb/sandbox"
)

// scratch is where the tests keep their state directories; it goes with the run.
var scratch string

// TestMain lets the test's own program be supervisor and VMM, and, with callerEnv set, a caller that a
// test kills.
func TestMain(m *testing.M) {
	sandbox.MaybeRun()
	if text := os.Getenv(sandbox.CallerEnv); text != "" {
		os.Exit(sandbox.CallOnce(text))
	}
	if home := os.Getenv(callerEnv); home != "" {
		if err := waitingCaller(home); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(vmtest.Run(m, &scratch))
}
