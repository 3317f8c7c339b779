//go:build linux && amd64

package qemu

import (
	"testing"

	"github.com/msb-project/msb/internal/vm"
	"github.com/msb-project/msb/internal/vm/vmm/vmmtest"
	"github.com/msb-project/msb/internal/vm/vmtest"
)

func backend(t testing.TB) *Backend {
	t.Helper()
	return New(Config{CacheDir: scratch, Program: vmmtest.Program(t)})
}

// suite runs its test beside the others: each has a machine of its own.
func suite(t *testing.T) *vmtest.Suite {
	t.Helper()
	t.Parallel()
	return &vmtest.Suite{Backend: backend(t), Root: vmtest.Root(t, scratch), Serials: true}
}

func suiteSpec(t *testing.T) vm.Spec {
	t.Helper()
	return vmtest.Spec(t, vmtest.Root(t, scratch))
}

func TestAgentPortCarriesBytesBothWays(t *testing.T) { suite(t).AgentPortCarriesBytesBothWays(t) }

func TestDisksComeInOrder(t *testing.T) { suite(t).DisksComeInOrder(t) }

func TestReadOnlyDisksAreOpenedSo(t *testing.T) {
	suite(t).ReadOnlyDiskIsOpenedForReadingOnly(t)
}

func TestDiscardFreesHostSpace(t *testing.T) { suite(t).DiscardFreesHostSpace(t) }

func TestI2_NoNetworkDeviceWithoutNet(t *testing.T) { suite(t).NoNetworkDeviceWithoutNet(t) }

func TestFramesFlowBothWays(t *testing.T) { suite(t).FramesFlowBothWays(t) }

func TestFailedStartsTakeTheDescriptor(t *testing.T) { suite(t).NetDescriptorIsTakenOverOnError(t) }

func TestHowAMachineEnds(t *testing.T) { suite(t).HowAMachineEnds(t) }

func TestKernelPanicsShowTheConsole(t *testing.T) {
	suite(t).GuestKernelPanicComesWithTheConsolesTail(t)
}

func TestKillLeavesNoZombie(t *testing.T) {
	suite(t).KillEndsTheProcessAndLeavesNoZombie(t)
}

func TestKilledByAnotherIsReported(t *testing.T) { suite(t).KilledByAnotherIsReported(t) }

func TestConsoleLogIsBounded(t *testing.T) { suite(t).ConsoleLogIsBounded(t) }

func TestI13_VMMsDieWithTheirSupervisor(t *testing.T) {
	suite(t).KillingTheSupervisorTakesTheVMMAlong(t)
}
