package review

import (
	"errors"
	"net/netip"

	"github.com/msb-project/msb/policies"
)

// ErrNothing says that there was nothing to review.
var ErrNothing = errors.New("no capture was given")

// Options say what is reviewed, and under which policy.
type Options struct {
	// Captures are files, pcap or pcapng. With a file of --pcap go the older parts of its recording, capture.Parts. Those whose names differ only in what rotation adds (out.pcapng,
	// out.pcapng.1) are parts of one recording and read in the order of their first packets. Each recording is
	// judged by itself: another's names and connections mean nothing in it.
	Captures []string
	// Policy judges every flow; Against, if it isn't nil, does too, for comparison.
	Policy, Against *policies.Policy
	// Host are the addresses of the host that the sandbox ran on, which the capture doesn't tell.
	Host []netip.Addr
	// Learn gathers what a policy would need that lets all of it through; see Report.Learned.
	Learn bool
}

// gateway are the gateway's addresses on the link, where nothing else is configured.
func gateway() []netip.Addr {
	return []netip.Addr{netip.AddrFrom4([4]byte{192, 168, 127, 1}), netip.MustParseAddr("fd6d:7362::1")}
}
