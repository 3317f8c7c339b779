package dnsguard

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/msb-project/msb/hostname"
)

func testPins() (*Pins, *testClock) {
	clock := &testClock{}
	clock.advance(time.Hour)
	p := newPins(clock.read)
	p.maxTTL.Store(int64(time.Hour))
	return p, clock
}

func TestPinLivesForTTLAndGrace(t *testing.T) {
	t.Parallel()
	p, clock := testPins()
	n, a := name("api.example"), addr("93.184.216.34")
	p.put(n, []netip.Addr{a}, time.Minute)
	clock.advance(time.Minute + pinGrace - 1)
	if !p.pinned(n, a) || !slices.Equal(p.Names(a), []hostname.Name{n}) || !slices.Equal(p.Addrs(n), []netip.Addr{a}) {
		t.Error("the pin is gone before its end")
	}
	if !p.pinned(n, addr("::ffff:93.184.216.34")) {
		t.Error("the mapped form is another address")
	}
	clock.advance(1)
	if p.pinned(n, a) || p.Names(a) != nil || p.Addrs(n) != nil {
		t.Error("the pin is there after its end")
	}
}

func TestFreshAnswersKeepTheUnion(t *testing.T) {
	t.Parallel()
	p, clock := testPins()
	n, first, second := name("cdn.example"), addr("93.184.216.1"), addr("93.184.216.2")
	p.put(n, []netip.Addr{first}, time.Minute)
	clock.advance(50 * time.Second)
	p.put(n, []netip.Addr{second}, time.Minute)
	clock.advance(time.Minute + pinGrace - 1)
	if !p.pinned(n, first) || !p.pinned(n, second) {
		t.Errorf("the second answer took the first one's address away: %v", p.Addrs(n))
	}
	// A name that rotates for ever keeps no address for longer than max_ttl
	// after an answer last held it.
	for range 200 {
		p.put(n, []netip.Addr{second}, time.Minute)
		clock.advance(time.Minute)
	}
	if p.pinned(n, first) || !p.pinned(n, second) {
		t.Errorf("after hours of rotation: %v", p.Addrs(n))
	}
}

func TestLiveFlowKeepsItsPin(t *testing.T) {
	t.Parallel()
	p, clock := testPins()
	n, a := name("api.example"), addr("93.184.216.34")
	if p.Hold(n, a); p.pinned(n, a) {
		t.Fatal("holding what isn't pinned made a pin")
	}
	p.put(n, []netip.Addr{a}, time.Minute)
	one, two := p.Hold(n, a), p.Hold(n, a)
	clock.advance(24 * time.Hour)
	if !p.pinned(n, a) || len(p.Names(a)) != 1 {
		t.Error("a held pin ended")
	}
	one()
	one()
	clock.advance(24 * time.Hour)
	if !p.pinned(n, a) {
		t.Error("releasing twice released another flow's hold")
	}
	two()
	if !p.pinned(n, a) {
		t.Error("the pin has no grace after its last flow")
	}
	clock.advance(pinGrace)
	if p.pinned(n, a) || p.Names(a) != nil {
		t.Error("the pin is there after the grace")
	}
}

func TestI11_PinsAreBounded(t *testing.T) {
	t.Parallel()
	p, _ := testPins()
	heldName, heldAddr := name("held.example"), addr("93.184.216.34")
	p.put(heldName, []netip.Addr{heldAddr}, time.Hour)
	defer p.Hold(heldName, heldAddr)()
	for i := range 3 * maxPinnedNames {
		p.put(name(fmt.Sprintf("n%d.example", i)), []netip.Addr{numbered(i)}, time.Hour)
	}
	names, pairs := p.len()
	if names != maxPinnedNames || pairs != names {
		t.Errorf("%d names, %d pairs, want %d", names, pairs, maxPinnedNames)
	}
	if !p.pinned(heldName, heldAddr) {
		t.Error("a held pin was evicted")
	}
	if got := p.evictedNames.Load(); got != 2*maxPinnedNames+1 {
		t.Errorf("%d evictions counted, want %d", got, 2*maxPinnedNames+1)
	}
	shared := addr("93.184.216.99")
	for i := range 2 * maxNamesPerAddr {
		p.put(name(fmt.Sprintf("s%d.example", i)), []netip.Addr{shared}, time.Hour)
	}
	if got := p.Names(shared); len(got) != maxNamesPerAddr || got[len(got)-1] != name(fmt.Sprintf("s%d.example", 2*maxNamesPerAddr-1)) {
		t.Errorf("%d names at one address, want the last %d", len(got), maxNamesPerAddr)
	}
	for i := range 2 * maxPinsPerName {
		p.put(name("many.example"), []netip.Addr{numbered(i)}, time.Hour)
	}
	if got := len(p.Addrs(name("many.example"))); got != maxPinsPerName {
		t.Errorf("%d addresses of one name, want %d", got, maxPinsPerName)
	}
	p.check(t)
}

// check verifies that both indexes say the same.
func (p *Pins) check(t *testing.T) {
	t.Helper()
	pairs := 0
	for n, owner := range p.names {
		if owner.name != n {
			t.Errorf("%s is filed under %s", owner.name, n)
		}
		for _, pin := range owner.pins {
			pairs++
			if at := p.addrs[pin.addr]; at == nil || !slices.Contains(at.pins, pin) {
				t.Errorf("%s at %s is missing on the other side", n, pin.addr)
			}
		}
	}
	for a, at := range p.addrs {
		pairs -= len(at.pins)
		if len(at.pins) == 0 {
			t.Errorf("%s has an empty entry", a)
		}
	}
	if pairs != 0 {
		t.Errorf("the indexes differ by %d pairs", pairs)
	}
	ring := 0
	for n := p.order.next; n != &p.order; n = n.next {
		ring++
	}
	if ring != len(p.names) {
		t.Errorf("%d names in the ring, %d in the index", ring, len(p.names))
	}
}

func TestI11_MillionNamesInBoundedMemory(t *testing.T) {
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	p, clock := testPins()
	before, most := heap(), uint64(0)
	const million = 1_000_000
	for i := range million {
		p.put(name(fmt.Sprintf("name-number-%d.tenant.example", i)), []netip.Addr{numbered(i), numbered(i + 7)}, time.Minute)
		if i%100_000 == 0 {
			most = max(most, heap())
			clock.advance(time.Second)
		}
	}
	most = max(most, heap())
	const bound = 64 << 20
	if most-before > bound {
		t.Errorf("the heap grew by %d MiB, want at most %d", (most-before)>>20, bound>>20)
	}
	if names, _ := p.len(); names != maxPinnedNames || p.evictedNames.Load() != million-maxPinnedNames {
		t.Errorf("%d names kept, %d evicted", names, p.evictedNames.Load())
	}
	p.check(t)
	t.Logf("at most %d KiB above the start", (most-before)>>10)
}

func numbered(i int) netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], 0x5d000000+uint32(i))
	return netip.AddrFrom4(b)
}

// TestI6_UnpinnedAnswersAreAskedAgain: the guest must never be handed
// an address that isn't pinned, also when the pin table was flooded since.
func TestI6_UnpinnedAnswersAreAskedAgain(t *testing.T) {
	t.Parallel()
	k := newKit(t, judgeOf("*.example"), records("api.example. 3000 IN A 93.184.216.34"))
	k.ask(t, "api.example", dns.TypeA)
	for i := range maxPinnedNames {
		k.Pins().put(name(fmt.Sprintf("n%d.example", i)), []netip.Addr{numbered(i)}, time.Hour)
	}
	if k.Pins().pinned(name("api.example"), addr("93.184.216.34")) {
		t.Fatal("the flood evicted nothing")
	}
	if _, why := k.ask(t, "api.example", dns.TypeA); why.Cached {
		t.Error("answered from the cache without a pin")
	}
	if !k.Pins().pinned(name("api.example"), addr("93.184.216.34")) {
		t.Error("handed out and not pinned")
	}
}

func BenchmarkPinnedNames(b *testing.B) {
	p, _ := testPins()
	for i := range maxPinnedNames {
		p.put(name(fmt.Sprintf("n%d.example", i)), []netip.Addr{numbered(i)}, time.Hour)
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if len(p.Names(numbered(i%maxPinnedNames))) != 1 {
			b.Fatal("not pinned")
		}
		i++
	}
}

// pinned reports whether addr is pinned to name. An IPv4-mapped addr is its
// IPv4 address.
func (p *Pins) pinned(name hostname.Name, addr netip.Addr) bool {
	now := p.clock()
	p.mu.RLock()
	defer p.mu.RUnlock()
	pin := p.find(name, plain(addr))
	return pin != nil && pin.alive(now)
}

// len returns how many names and how many pairs of name and address are in the
// table, ended ones that were not cleared away yet included.
func (p *Pins) len() (names, pairs int) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	for _, owner := range p.names {
		pairs += len(owner.pins)
	}
	return len(p.names), pairs
}
