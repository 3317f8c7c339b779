//go:build linux

package vmtest

import (
	"testing"

	"github.com/msb-project/msb/internal/vm"
)

// Suite is what every backend must do, looked at from inside the guest and
// from outside the VMM. Each method is one test.
type Suite struct {
	Backend vm.Backend
	// Root is the guests' root disk, see Root.
	Root string
	// Serials is true where the guest sees Disk.ID as the disk's serial.
	Serials bool
}

func (s *Suite) spec(t testing.TB) vm.Spec {
	t.Helper()
	return Spec(t, s.Root)
}
