//go:build linux

package vmtest

import (
	"errors"
	"io"
	"net"
	"testing"

	"github.com/msb-project/msb/internal/vm"
	"github.com/msb-project/msb/internal/vm/runner"
)

// NoNetworkDeviceWithoutNet holds invariant 2 for a machine without Net.
func (s *Suite) NoNetworkDeviceWithoutNet(t *testing.T) {
	t.Helper()
	g := Boot(t, s.Backend, s.spec(t))
	checkNoNetwork(t, g)
}

// FramesFlowBothWays sends a frame each way.
func (s *Suite) FramesFlowBothWays(t *testing.T) {
	t.Helper()
	ours, theirs, err := runner.StreamPair("link")
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	spec := s.spec(t)
	spec.Net = &vm.Net{FD: theirs, MAC: net.HardwareAddr{0x02, 0, 0, 0, 0, 1}}
	g := Boot(t, s.Backend, spec)
	CheckFrames(t, g, ours, spec.Net.MAC)
}

// NetDescriptorIsTakenOverOnError holds what Net.FD promises.
func (s *Suite) NetDescriptorIsTakenOverOnError(t *testing.T) {
	t.Helper()
	ours, theirs, err := runner.StreamPair("link")
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	spec := s.spec(t)
	spec.CPUs = 0
	spec.Net = &vm.Net{FD: theirs, MAC: net.HardwareAddr{0x02, 0, 0, 0, 0, 1}}
	if _, err := s.Backend.Start(t.Context(), spec); !errors.Is(err, vm.ErrSpec) {
		t.Fatalf("start with 0 CPUs: %v, want ErrSpec", err)
	}
	if n, err := ours.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("read of our end: %d, %v; want EOF because the other is closed", n, err)
	}
}
