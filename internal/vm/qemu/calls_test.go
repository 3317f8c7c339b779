//go:build linux && amd64

package qemu

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/internal/vm/runner"
	"github.com/msb-project/msb/internal/vm/vmm/vmmtest"
	"github.com/msb-project/msb/internal/vm/vmtest"
)

// triedInVain are calls that QEMU makes and does without.
var triedInVain = map[runner.Refused]string{
	{Number: unix.SYS_GET_MEMPOLICY}:  "libnuma looks whether there is NUMA",
	{Number: unix.SYS_SET_MEMPOLICY}:  "the same",
	{Number: unix.SYS_MEMFD_CREATE}:   "QEMU looks whether guest memory could be shared",
	{Number: unix.SYS_IO_URING_SETUP}: "QEMU looks whether it could use it",
}

func TestI8_FullLifeNeedsNoOtherCall(t *testing.T) {
	t.Parallel()
	r := new(runner.Recording)
	s := &vmtest.Suite{Backend: New(Config{CacheDir: scratch, Program: vmmtest.Program(t), record: r}), Root: vmtest.Root(t, scratch), Serials: true}
	s.NeedsNoOtherCall(t, r, func(c runner.Refused) bool { return triedInVain[c] != "" }, "reboot", "kill")
}
