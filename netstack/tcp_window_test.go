package netstack_test

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/msb-project/msb/netstack"
	"github.com/msb-project/msb/netstack/netstacktest"
)

// rawTCP is a guest's side of one connection, written segment by segment.
type rawTCP struct {
	t    *testing.T
	cfg  netstack.Config
	conn net.Conn
	link *netstack.StreamLink

	next, ack uint32 // what it sends and expects next
	edge      uint32 // the furthest that the gateway ever announced
	scale     uint8  // of the gateway's windows
}

// send writes a segment and moves on by its length.
func (r *rawTCP) send(flags header.TCPFlags, options, data []byte) {
	r.t.Helper()
	size := header.TCPMinimumSize + len(options)
	b := make([]byte, size, size+len(data))
	h := header.TCP(b)
	h.Encode(&header.TCPFields{SrcPort: 40000, DstPort: server4.Port(), SeqNum: r.next, AckNum: r.ack, DataOffset: uint8(size), Flags: flags, WindowSize: 8000})
	copy(b[header.TCPMinimumSize:], options)
	b = append(b, data...)
	sum := header.PseudoHeaderChecksum(6, tcpip.AddrFromSlice(r.cfg.Guest4.AsSlice()), tcpip.AddrFromSlice(server4.Addr().AsSlice()), uint16(len(b)))
	h.SetChecksum(^checksum.Checksum(b, sum))
	frame := ethBetween(r.cfg.GuestMAC, r.cfg.GatewayMAC, ip(r.cfg.Guest4, server4.Addr(), 6, b))
	if _, err := r.conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...)); err != nil {
		r.t.Fatal(err)
	}
	r.next += uint32(len(data))
	if flags.Contains(header.TCPFlagSyn) {
		r.next++
	}
}

// receive takes one segment, or none when that time is over, and says how many
// new bytes were in it.
func (r *rawTCP) receive(wait time.Duration) (fresh int, ok bool) {
	for {
		_ = r.conn.SetReadDeadline(time.Now().Add(wait))
		frame, err := r.link.ReadFrame()
		if err != nil {
			return 0, false
		}
		if len(frame) < 34 || frame[12] != 8 || frame[13] != 0 || frame[23] != 6 {
			continue
		}
		packet := header.IPv4(frame[14:])
		tcp := header.TCP(packet.Payload())
		sum := header.PseudoHeaderChecksum(6, packet.SourceAddress(), packet.DestinationAddress(), packet.PayloadLength())
		if checksum.Checksum(tcp, sum) != 0xffff {
			r.t.Fatal("a segment's checksum is wrong")
		}
		if tcp.Flags().Contains(header.TCPFlagSyn) {
			r.ack, r.scale = tcp.SequenceNumber()+1, uint8(header.ParseSynOptions(tcp.Options(), true).WS)
			r.edge = tcp.AckNumber()
			return 0, true
		}
		if edge := tcp.AckNumber() + uint32(tcp.WindowSize())<<r.scale; int32(edge-r.edge) > 0 {
			r.edge = edge
		}
		end := tcp.SequenceNumber() + uint32(len(tcp.Payload()))
		if fresh = int(int32(end - r.ack)); fresh > 0 {
			r.ack = end
		}
		return max(fresh, 0), true
	}
}

// zeros never ends.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

// When a guest has filled its window to the byte, its acknowledgements are still
// read: they free the other direction.
func TestI11_FullWindowLeavesAcknowledgementsHeard(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	s, err := netstack.New(netstack.Config{GuestMAC: netstacktest.MAC, Handler: &netstacktest.Handler{TCP: func(_ context.Context, f *netstack.TCPFlow) {
		c, err := f.Accept()
		if err != nil {
			return
		}
		defer c.Reset()
		go func() { _, _ = io.Copy(c, zeros{}) }()
		<-release // it reads nothing
	}}})
	if err != nil {
		t.Fatal(err)
	}
	gateway, guest := netstacktest.Pair(t)
	served := make(chan error, 1)
	go func() { served <- s.Serve(context.Background(), netstack.NewStreamLink(gateway)) }()
	t.Cleanup(func() { close(release); _ = s.Close(); <-served })

	r := &rawTCP{t: t, cfg: s.Config(), conn: guest, link: netstack.NewStreamLink(guest), next: 1000}
	r.send(header.TCPFlagSyn, []byte{3, 3, 3, 1}, nil)
	if _, ok := r.receive(patience); !ok {
		t.Fatal("no SYN-ACK")
	}
	r.send(header.TCPFlagAck, nil, nil)
	start := r.next
	for r.receive(300 * time.Millisecond); r.next != r.edge; { // the first waits for the gateway's data
		size := min(1001, r.edge-r.next)
		if tail := uint32(1)<<r.scale/2 + 1; size == r.edge-r.next && size > tail {
			size -= tail // ends less than a unit of the window before the edge
		}
		r.send(header.TCPFlagAck, nil, make([]byte, size))
		for wait := 2 * time.Millisecond; ; {
			if _, ok := r.receive(wait); !ok && r.next != r.edge || !ok && wait > 100*time.Millisecond {
				break
			} else if !ok {
				wait *= 2
			}
		}
	}
	if r.next-start < 64<<10 {
		t.Fatalf("the window was full after %d bytes: the test's gateway is not the real one's size", r.next-start)
	}
	for round := range 3 {
		r.send(header.TCPFlagAck, nil, nil)
		got := 0
		for got == 0 {
			fresh, ok := r.receive(patience)
			if !ok {
				t.Fatalf("round %d: the acknowledgement of a guest with a full window was not taken", round)
			}
			got += fresh
		}
	}
}
