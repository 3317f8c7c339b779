package review

import (
	"net/netip"
	"strings"

	"github.com/msb-project/msb/capture"
	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/hostname"
)

// table holds every flow of a capture. Rows hold no pointers: what repeats (addresses, names, verdicts)
// is kept once and named by number, so that a million flows need some 150 MB and no time of the
// garbage collector.
type table struct {
	// flows is how many rows there are, in pieces of rowPiece.
	flows int
	rows  [][]row
	live  map[flowKey]uint32
	addrs interned[netip.Addr]
	names interned[string]
	said  interned[Verdict]
	// proxyTargets are the hosts and ports that the proxied flows ask for.
	proxyTargets map[uint32]string
}

// rowPiece is how many rows are made at once: they are never moved.
const rowPiece = 1024

// row is one flow. Numbers of interned values are 0 for none.
type row struct {
	start, end int64
	up, down   int64
	key        flowKey
	packets    uint32
	isn        uint32 // of its SYN
	iss        uint32 // of the gateway's; before that, what a reset that answers the SYN acknowledges
	names      uint32 // the pinned names, joined by spaces
	name       uint32 // what the client said
	recorded   uint32
	verdict    uint32
	against    uint32
	flags      rowFlags
}

type rowFlags uint16

const (
	// inbound is a flow that the host opened to the guest.
	inbound rowFlags = 1 << iota
	// partial is one whose beginning is not in the capture.
	partial
	// cut is one of which the capture lacks the bytes that decide.
	cut
	// lookup is one to port 53, which the resolver answers whatever its destination.
	lookup
	// proxied is one to the explicit proxy, which is judged as what it asks for.
	proxied
	// followed is one whose requests are followed, untracked one of which more requests may follow than are read.
	followed
	untracked
	// commented is one whose requests are in the capture's comments.
	commented
	// answered is a connection whose SYN the gateway has answered, reset one that it has reset.
	answered
	reset
	// oneSided is a connection that carries data though its answer isn't in the capture.
	oneSided
)

// flowKey names a flow by numbers of addresses, from the side that opened it.
type flowKey struct {
	src, dst         uint32
	srcPort, dstPort uint16
	proto            capture.Transport
}

func (k flowKey) reversed() flowKey {
	k.src, k.dst, k.srcPort, k.dstPort = k.dst, k.src, k.dstPort, k.srcPort
	return k
}

func (t *table) init() {
	t.live = make(map[flowKey]uint32)
	t.proxyTargets = make(map[uint32]string)
	t.addrs.init()
	t.names.init()
	t.said.init()
}

func (t *table) key(h *capture.Headers) flowKey {
	return flowKey{
		src: t.addrs.number(h.Src.Addr()), dst: t.addrs.number(h.Dst.Addr()),
		srcPort: h.Src.Port(), dstPort: h.Dst.Port(), proto: h.Transport,
	}
}

// row is the row of a flow; it stays where it is.
func (t *table) row(id uint32) *row { return &t.rows[id/rowPiece][id%rowPiece] }

// open adds a flow.
func (t *table) open(k flowKey, at int64, flags rowFlags) uint32 {
	id := uint32(t.flows)
	if t.flows%rowPiece == 0 {
		t.rows = append(t.rows, make([]row, rowPiece))
	}
	t.flows++
	*t.row(id) = row{key: k, start: at, end: at, flags: flags}
	t.live[k] = id
	return id
}

func (t *table) ends(k flowKey) (src, dst netip.AddrPort) {
	return netip.AddrPortFrom(t.addrs.value(k.src), k.srcPort), netip.AddrPortFrom(t.addrs.value(k.dst), k.dstPort)
}

func (t *table) verdict(v Verdict) uint32 { return t.said.number(v) }

// maxFlowNames bounds the pinned names that are kept of one flow, the oldest first. A guest that has a new name
// pinned to its server for each connection would have each of them listed with hundreds.
const maxFlowNames = 16

// name keeps what is known of a flow's names.
func (t *table) name(r *row, f *egress.Flow) {
	if len(f.Pinned) > 0 {
		r.names = t.names.number(joined(f.Pinned[:min(len(f.Pinned), maxFlowNames)]))
	}
	if !f.Name.IsZero() {
		r.name = t.names.number(f.Name.String())
	}
}

func joined(names []hostname.Name) string {
	if len(names) == 1 {
		return names[0].String()
	}
	var b strings.Builder
	for i, n := range names {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(n.String())
	}
	return b.String()
}

// interned gives each value a number from 1.
type interned[T comparable] struct {
	numbers map[T]uint32
	values  []T
}

func (i *interned[T]) init() {
	i.numbers = make(map[T]uint32)
	i.values = make([]T, 1)
}

func (i *interned[T]) number(v T) uint32 {
	n, ok := i.numbers[v]
	if !ok {
		n = uint32(len(i.values))
		i.values = append(i.values, v)
		i.numbers[v] = n
	}
	return n
}

func (i *interned[T]) value(n uint32) T { return i.values[n] }
