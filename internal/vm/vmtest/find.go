package vmtest

import (
	"os"
	"path/filepath"

	"github.com/msb-project/msb/internal/vm"
)

// FindLibraries lets tests use what scripts/setup put under lib/msb at the
// root of the module, unless the caller's environment says otherwise. Tests
// run in their package's directory, and their program is in none.
func FindLibraries() error {
	if os.Getenv(vm.LibDirEnv) != "" {
		return nil
	}
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return os.Setenv(vm.LibDirEnv, filepath.Join(dir, "lib", "msb"))
		}
	}
	return nil
}
