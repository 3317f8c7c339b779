package hypervisors

import (
	"os"

	"github.com/msb-project/msb/internal/guest/assets"
	"github.com/msb-project/msb/internal/vm"
	"github.com/msb-project/msb/internal/vm/krun"
	"github.com/msb-project/msb/internal/vm/qemu"
)

// All returns every backend, the preferred first. The guest's kernel is cached
// under cacheDir, which is made when it is needed. VMMs start in the small
// program that is built in, if it is.
func All(cacheDir string) []vm.Backend {
	return []vm.Backend{
		krun.New(krun.Config{CacheDir: cacheDir, Program: assets.VMM().Packed}),
		qemu.New(qemu.Config{CacheDir: cacheDir, Program: assets.VMM().Packed}),
	}
}

// MaybeRun must be the first thing that main, or TestMain, does: when this
// process was started to become a VMM it does so and does not return.
func MaybeRun() {
	if code, ok := run(os.Args); ok {
		os.Exit(code)
	}
}
