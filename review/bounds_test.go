package review

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/msb-project/msb/capture"
	"github.com/msb-project/msb/dnsguard"
	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/netstack"
	"github.com/msb-project/msb/netstack/frameguard"
)

// TestI11_SegmentsBeforeTheirTurnAreBounded: a capture may hold any number of connections whose clients begin
// somewhere ahead. What can't decide any more is not kept, and of the rest no more than a little.
func TestI11_SegmentsBeforeTheirTurnAreBounded(t *testing.T) {
	t.Parallel()
	kept := func(p *pending) (n int) {
		for _, s := range p.early {
			n += cap(s.data)
		}
		return n
	}
	take := func(p *pending, seq uint32, data []byte) bool {
		return p.take(&capture.Headers{Flags: capture.ACK, Seq: seq, Payload: data}, maxFirst-len(p.first), p.keep)
	}
	far := &pending{stream: stream{next: 1, lenient: true}}
	for i := range uint32(100) {
		if !take(far, 1+maxFirst+i*70_000, make([]byte, 60_000)) {
			t.Fatal("a segment that decides nothing ended the wait")
		}
	}
	if n := kept(far); n != 0 {
		t.Errorf("%d bytes are kept that come after the last one that is read", n)
	}
	near := &pending{stream: stream{next: 1, lenient: true}}
	for take(near, 2, make([]byte, 60_000)) {
		if n := kept(near); n > 4*maxFirst {
			t.Fatalf("%d bytes are kept of one connection", n)
		}
	}
	if take(near, 1, []byte("x")); len(near.first) != maxFirst || near.waiting < 0 {
		t.Errorf("%d bytes after the hole was filled, want %d", len(near.first), maxFirst)
	}
}

// TestI11_NamesOfAFlowAreBounded: a guest may have any number of names pinned to a server of its own.
func TestI11_NamesOfAFlowAreBounded(t *testing.T) {
	t.Parallel()
	var tab table
	tab.init()
	var names []hostname.Name
	for i := range 256 {
		names = append(names, hostname.MustParse(fmt.Sprintf("n%d.example", i)))
	}
	id := tab.open(flowKey{src: tab.addrs.number(netip.IPv4Unspecified()), dst: 1}, 0, 0)
	tab.name(tab.row(id), &egress.Flow{Pinned: names})
	if f := tab.flow(int(id)); len(f.Names) != maxFlowNames || f.Names[0] != "n0.example" {
		t.Errorf("%d names: %q", len(f.Names), f.Names)
	}
}

// TestI11_AddressesOfANameAreBounded: answers may hold any number of them.
func TestI11_AddressesOfANameAreBounded(t *testing.T) {
	t.Parallel()
	var n nameRows
	n.init()
	addr := netip.MustParseAddr("93.184.216.34")
	for range 100 {
		seen := dnsguard.Replayed{Name: hostname.MustParse("a.example"), Type: "A", Addrs: []netip.Addr{addr, addr}, Removed: []netip.Addr{addr}}
		n.add(byPolicy, false, seen)
		addr = addr.Next()
	}
	if l := n.rows()[0]; len(l.Answers) != maxListed || len(l.Removed) != maxListed {
		t.Errorf("%d answers, %d removed, want %d of each", len(l.Answers), len(l.Removed), maxListed)
	} else if once := slices.Compact(slices.Clone(l.Answers)); len(once) != len(l.Answers) {
		t.Errorf("addresses are listed twice: %v", l.Answers)
	}
}

// TestI11_CutFramesAreNotFilledUp beyond what a link carries: their length is the word of whoever made the capture.
func TestI11_CutFramesAreNotFilledUp(t *testing.T) {
	t.Parallel()
	g := frameGuard{offline: frameguard.NewOffline()}
	for length, filled := range map[int]bool{1500: true, netstack.MaxFrame: true, netstack.MaxFrame + 1: false, 1 << 30: false} {
		g.padded = nil
		g.dropReason(&capture.Record{Frame: make([]byte, 200), Length: length, Direction: capture.FromGuest}, &capture.Headers{}, false)
		if (cap(g.padded) > 0) != filled || cap(g.padded) > 2*netstack.MaxFrame {
			t.Errorf("a frame of %d bytes: %d are held", length, cap(g.padded))
		}
	}
}
