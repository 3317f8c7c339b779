package dnsguard

import (
	"context"
	"net"
	"sync"

	"golang.org/x/net/ipv4"

	"github.com/msb-project/msb/dnsguard/wire"
)

// ServePacket answers queries from a socket that many clients share, with
// readers goroutines that read from it (at least one), until ctx ends or the
// guard is closed. It closes conn. The gateway has a connection for each flow
// and uses ServeUDP; this is for resolvers on a socket of the host.
func (g *Guard) ServePacket(ctx context.Context, conn *net.UDPConn, readers int) {
	ctx, cancel := g.underGuard(ctx)
	defer cancel()
	defer cutOnDone(ctx, conn)()
	defer func() { _ = conn.Close() }()
	var wg sync.WaitGroup
	for range max(readers, 1) {
		wg.Go(func() { newPacketReader(g, conn).run(ctx) })
	}
	wg.Wait()
}

// batch is how many datagrams are read or written by one system call, where the
// system can (Linux): at 50,000 queries a second the calls are most of the work.
const batch = 32

// packetReader is one reader of a shared socket, with its buffers.
type packetReader struct {
	session
	conn    *net.UDPConn
	batches *ipv4.PacketConn // works on sockets of both families
	in, out [batch]ipv4.Message
	answers [batch][]byte
	q       wire.Question
}

func newPacketReader(g *Guard, conn *net.UDPConn) *packetReader {
	r := &packetReader{
		session: session{g: g, udp: true, ends: flowEnds{proto: "udp", dst: addrPortOf(conn.LocalAddr())}},
		conn:    conn,
		batches: ipv4.NewPacketConn(conn),
	}
	for i := range batch {
		r.in[i].Buffers = [][]byte{make([]byte, maxQuery+1)}
		r.answers[i] = make([]byte, 0, wire.MaxUDP)
		r.out[i].Buffers = make([][]byte, 1)
	}
	return r
}

// run reads until the socket ends.
func (r *packetReader) run(ctx context.Context) {
	defer r.leave()
	for ctx.Err() == nil {
		n, err := r.batches.ReadBatch(r.in[:], 0)
		if err != nil {
			return
		}
		r.write(r.answer(r.in[:n]))
	}
}

// answer answers what needs no wait into out, and returns how many that are.
func (r *packetReader) answer(in []ipv4.Message) (ready int) {
	for i := range in {
		from := in[i].Addr
		r.ends.srcPort = addrPortOf(from).Port()
		answer, _ := r.answerNow(in[i].Buffers[0][:in[i].N], r.answers[ready], &r.q, func(answer []byte) {
			_, _ = r.conn.WriteTo(answer, from)
		})
		if answer == nil {
			continue
		}
		r.out[ready].Buffers[0], r.out[ready].Addr = answer, from
		ready++
	}
	return ready
}

// write sends the first ready answers. One that the system refuses to send is
// left out: whoever asked asks again.
func (r *packetReader) write(ready int) {
	for sent := 0; sent < ready; {
		n, err := r.batches.WriteBatch(r.out[sent:ready], 0)
		if err != nil || n == 0 {
			n = max(n, 0) + 1
		}
		sent += n
	}
}
