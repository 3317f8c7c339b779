//go:build !linux

package grants

import (
	"errors"
	"os"

	"github.com/msb-project/msb/policies"
)

func openHeld(path string) (*os.File, error) { return openCompared(path) }

// Copy is for Linux only.
func Copy(*policies.Hold) (*os.File, error) {
	return nil, errors.New("a script in the policy's directory can be run on Linux only; name a program elsewhere")
}
