//go:build linux && cgo && amd64

package krun

import (
	"os"
	"testing"

	"github.com/msb-project/msb/internal/vm"
	"github.com/msb-project/msb/internal/vm/runner"
	"github.com/msb-project/msb/internal/vm/vmtest"
)

// scratch is a directory for what all tests share; vmtest.Run removes it.
var scratch string

// TestMain lets the test's own program be the runner and the VMM, as msb is.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case runner.Verb:
			os.Exit(runner.Main())
		case Verb:
			os.Exit(Main())
		}
	}
	vmtest.MaybeSupervise(func(dir string) vm.Backend { return New(Config{CacheDir: kernelCache(dir)}) })
	os.Exit(vmtest.Run(m, &scratch))
}
