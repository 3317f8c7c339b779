package dnsguard

import (
	"net/netip"
	"testing"
	"time"

	"github.com/msb-project/msb/hostname"
)

// TestI6_HoldRevivesNoPin: a flow that begins after its name's time is up doesn't bring the pin back.
func TestI6_HoldRevivesNoPin(t *testing.T) {
	t.Parallel()
	var now time.Duration
	p := newPins(func() time.Duration { return now })
	name, addr := hostname.MustParse("a.example"), netip.MustParseAddr("93.184.216.34")
	p.put(name, []netip.Addr{addr}, time.Minute)
	now = time.Minute + pinGrace
	release := p.Hold(name, addr)
	if p.pinned(name, addr) {
		t.Error("a pin that ended is held")
	}
	release()
	if p.pinned(name, addr) {
		t.Error("a pin that ended lives again after the flow")
	}
	p.put(name, []netip.Addr{addr}, time.Minute) // the twin: one that lives is held
	release = p.Hold(name, addr)
	now += time.Hour
	if !p.pinned(name, addr) {
		t.Error("a pin that a flow holds ended")
	}
	release()
}
