//go:build linux && amd64

package qemu

import (
	"os"
	"testing"

	"github.com/msb-project/msb/internal/vm"
	"github.com/msb-project/msb/internal/vm/runner"
	"github.com/msb-project/msb/internal/vm/vmtest"
)

// scratch is a directory for what all tests share; vmtest.Run removes it.
var scratch string

// TestMain lets the test's own program be the runner, as msb is.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == runner.Verb {
		os.Exit(runner.Main())
	}
	vmtest.MaybeSupervise(func(dir string) vm.Backend { return New(Config{CacheDir: dir}) })
	os.Exit(vmtest.Run(m, &scratch))
}
