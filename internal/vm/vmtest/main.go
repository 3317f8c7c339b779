package vmtest

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// Run is what a TestMain does around its tests: it finds the libraries, makes
// a scratch directory for what the tests share, and looks for goroutines that
// were left behind. It returns the exit code.
func Run(m *testing.M, scratch *string) int {
	if err := FindLibraries(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	dir, err := os.MkdirTemp("", "msb-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	*scratch = dir
	code := m.Run()
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}
