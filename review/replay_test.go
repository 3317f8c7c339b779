package review_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/msb-project/msb/capture"
	"github.com/msb-project/msb/gateway"
	"github.com/msb-project/msb/gateway/gatewaytest"
	"github.com/msb-project/msb/netstack"
	"github.com/msb-project/msb/netstack/netstacktest"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/review/pcapgen"
)

// replayWait bounds the wait for the gateway's answer to a SYN.
const replayWait = 20 * time.Second

// guest replays recorded frames on the guest's end of a link. The gateway's sequence numbers are its
// own, so acknowledgements are moved to them.
type guest struct {
	t       *testing.T
	gateway *gateway.Gateway
	mac     net.HardwareAddr
	link    net.Conn
	wg      sync.WaitGroup
	cancel  context.CancelFunc

	mu       sync.Mutex
	changed  chan struct{}
	answered map[connection]uint32 // the sequence number of the gateway's SYN-ACK
	over     map[connection]bool   // reset, or its SYN was dropped
	recorded map[connection]uint32
	answers  map[uint16]int // messages from a resolver, by the guest's port
	awaited  map[uint16]int
	heard    map[connection]bool // the gateway said something, or ended
	pinged   map[netip.Addr]int  // echo replies, by who is said to send them
	pings    map[netip.Addr]int  // those awaited
	audit    gatewaytest.Recorder
	echoed   bool
	resolved bool
}

// connection names a TCP connection from the guest's side.
type connection struct {
	port uint16
	peer netip.AddrPort
}

// macOf is whom a capture's first frame to the guest is for: the card as it was made. A real guest's is
// random.
func macOf(t *testing.T, file []byte) net.HardwareAddr {
	t.Helper()
	r, err := capture.NewReader(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	for {
		rec, err := r.Next()
		if err != nil {
			return pcapgen.GuestMAC // the guest of this case is answered nothing
		}
		if rec.Kind == capture.PacketRecord && rec.Direction == capture.ToGuest && len(rec.Frame) >= 14 && rec.Frame[0]&1 == 0 {
			return net.HardwareAddr(bytes.Clone(rec.Frame[:6]))
		}
	}
}

func startGuest(t *testing.T, p *policies.Policy, world *gatewaytest.Internet, mac net.HardwareAddr) *guest {
	t.Helper()
	p.DNS.Servers = []policies.Server{{Kind: policies.ServerUDP, Addr: netip.MustParseAddrPort(gatewaytest.Resolver)}}
	g := &guest{
		t: t, mac: mac, changed: make(chan struct{}),
		answered: map[connection]uint32{}, over: map[connection]bool{}, recorded: map[connection]uint32{},
		answers: map[uint16]int{}, awaited: map[uint16]int{}, heard: map[connection]bool{},
		pinged: map[netip.Addr]int{}, pings: map[netip.Addr]int{},
	}
	gw, err := gateway.New(gateway.Config{
		Sandbox: "replay", Policy: p, Dialer: world, Pinger: world, Audit: &g.audit, HasIPv6: func() bool { return true },
		Link: netstack.Config{GuestMAC: mac, DHCP: true, Tap: g},
	})
	if err != nil {
		t.Fatal(err)
	}
	g.gateway = gw
	ours, theirs := netstacktest.Pair(t)
	g.link = theirs
	ctx, cancel := context.WithCancel(t.Context())
	g.cancel = cancel
	g.wg.Go(func() { _ = gw.Serve(ctx, netstack.NewStreamLink(ours)) })
	g.wg.Go(g.receive)
	return g
}

func (g *guest) close() {
	g.t.Helper()
	if err := g.gateway.Close(); err != nil {
		g.t.Errorf("closing the gateway: %v", err)
	}
	g.cancel()
	_ = g.link.Close()
	g.wg.Wait()
}

// Frame implements netstack.FrameTap: a SYN that the guard dropped gets no answer.
func (g *guest) Frame(dir netstack.Direction, frame []byte, dropped netstack.DropReason) {
	if dir == netstack.ToGuest || dropped == "" {
		return
	}
	if h, ok := capture.Decode(frame); ok && h.Transport == capture.TransportTCP {
		g.note(func() { g.over[connection{h.Src.Port(), h.Dst}] = true })
	}
}

func (g *guest) note(change func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change()
	close(g.changed)
	g.changed = make(chan struct{})
}

// wait waits until done, and reports whether it came.
func (g *guest) wait(done func() bool) bool { return g.waitFor(replayWait, done) }

func (g *guest) waitFor(limit time.Duration, done func() bool) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		g.mu.Lock()
		ok, changed := done(), g.changed
		g.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-changed:
		case <-timer.C:
			return false
		}
	}
}

// receive reads what the gateway sends.
func (g *guest) receive() {
	var head [4]byte
	for {
		if _, err := io.ReadFull(g.link, head[:]); err != nil {
			return
		}
		frame := make([]byte, binary.BigEndian.Uint32(head[:]))
		if _, err := io.ReadFull(g.link, frame); err != nil {
			return
		}
		h, ok := capture.Decode(frame)
		if !ok {
			continue
		}
		c := connection{h.Dst.Port(), h.Src}
		switch {
		case h.Transport == capture.TransportPing && !h.Request:
			g.note(func() { g.echoed = true; g.pinged[h.Src.Addr()]++ })
		case h.Transport == capture.TransportUDP && h.Dst.Port() == alivePort:
			g.note(func() { g.resolved = true })
		case h.Src.Port() == 53 && len(h.Payload) > 0:
			g.note(func() { g.answers[h.Dst.Port()] += messages(&h) })
		case h.Transport == capture.TransportTCP && (len(h.Payload) > 0 || h.Flags&capture.FIN != 0):
			g.note(func() { g.heard[c] = true })
		case h.Transport == capture.TransportTCP && h.Flags&capture.RST != 0:
			g.note(func() { g.over[c] = true })
		case h.Transport == capture.TransportTCP && h.Flags&(capture.SYN|capture.ACK) == capture.SYN|capture.ACK:
			g.note(func() { g.answered[c] = h.Seq })
		}
	}
}

// messages counts the DNS messages of a packet; over TCP each begins with its length.
func messages(h *capture.Headers) (n int) {
	if h.Transport == capture.TransportUDP {
		return 1
	}
	for b := h.Payload; len(b) >= 2; n++ {
		b = b[min(len(b), 2+int(binary.BigEndian.Uint16(b))):]
	}
	return n
}

// answerPings makes what answered pings in a capture answer them again.
func answerPings(t *testing.T, world *gatewaytest.Internet, file []byte) {
	t.Helper()
	r, err := capture.NewReader(bytes.NewReader(file))
	for err == nil {
		var rec *capture.Record
		if rec, err = r.Next(); err != nil {
			break
		}
		if h, ok := capture.Decode(rec.Frame); ok && rec.Direction == capture.ToGuest && h.Transport == capture.TransportPing && !h.Request {
			world.AnswerPings(h.Src.Addr())
		}
	}
	if !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
}

// inject replays the guest's frames of a capture.
func (g *guest) inject(file []byte) {
	g.t.Helper()
	r, err := capture.NewReader(bytes.NewReader(file))
	if err != nil {
		g.t.Fatal(err)
	}
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			g.t.Fatal(err)
		}
		h, ok := capture.Decode(rec.Frame)
		if rec.Direction == capture.ToGuest {
			if ok && h.Flags&(capture.SYN|capture.ACK) == capture.SYN|capture.ACK {
				g.recorded[connection{h.Dst.Port(), h.Src}] = h.Seq
			}
			if ok && len(h.Payload) > 0 {
				g.await(&h)
			}
			if ok && h.Transport == capture.TransportTCP && h.Flags&capture.FIN != 0 {
				g.parted(connection{h.Dst.Port(), h.Src})
			}
			continue
		}
		frame := bytes.Clone(rec.Frame)
		if ok && h.Transport == capture.TransportTCP && h.Flags&capture.ACK != 0 && !g.follow(frame, &h) {
			continue
		}
		g.send(frame)
	}
}

// parted waits where the capture shows that the gateway ended a connection too: only then has it judged a
// client that left without a word.
func (g *guest) parted(c connection) {
	g.waitFor(2*time.Second, func() bool { return g.heard[c] || g.over[c] })
}

// await holds the guest back where the capture shows an answer: a client that leaves at once asks for
// nothing.
func (g *guest) await(h *capture.Headers) {
	g.t.Helper()
	port, from := h.Dst.Port(), h.Src.Addr()
	switch {
	case h.Transport == capture.TransportPing && !h.Request:
		g.pings[from]++
		if !g.wait(func() bool { return g.pinged[from] >= g.pings[from] }) {
			g.t.Errorf("a ping of %v got no answer", from)
		}
	case h.Src.Port() == 53:
		g.awaited[port] += messages(h)
		if !g.wait(func() bool { return g.answers[port] >= g.awaited[port] }) {
			g.t.Errorf("a question from port %d got no answer", port)
		}
	case h.Transport == capture.TransportTCP:
		c := connection{port, h.Src}
		if !g.wait(func() bool { return g.heard[c] || g.over[c] }) {
			g.t.Errorf("the gateway said nothing to a client of %v that waits for its answer", h.Src)
		}
	}
}

// follow moves the acknowledgement of a frame to the gateway's numbers. It reports false for a frame of
// a connection that the gateway refused: the guest's stack would not have sent it.
func (g *guest) follow(frame []byte, h *capture.Headers) bool {
	c := connection{h.Src.Port(), h.Dst}
	was, open := g.recorded[c]
	if !open {
		return true
	}
	if !g.wait(func() bool { _, yes := g.answered[c]; return yes || g.over[c] }) {
		g.t.Errorf("the gateway neither took nor refused a connection to %v", h.Dst)
		return false
	}
	g.mu.Lock()
	is, over := g.answered[c], g.over[c]
	g.mu.Unlock()
	if over {
		return false
	}
	at := 14 + 40
	if frame[14]>>4 == 4 {
		at = 14 + int(frame[14]&15)*4
	}
	ack := binary.BigEndian.Uint32(frame[at+8:])
	replaceTCP(frame[at:], 8, ack-was+is)
	return true
}

// replaceTCP changes four bytes of a TCP header and its checksum with them (RFC 1624), so that one that
// was wrong stays wrong.
func replaceTCP(tcp []byte, at int, v uint32) {
	sum := uint32(^binary.BigEndian.Uint16(tcp[16:]))
	for i := at; i < at+4; i += 2 {
		sum += uint32(^binary.BigEndian.Uint16(tcp[i:]))
	}
	binary.BigEndian.PutUint32(tcp[at:], v)
	for i := at; i < at+4; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(tcp[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(tcp[16:], ^uint16(sum))
}

func (g *guest) send(frame []byte) {
	g.t.Helper()
	b := binary.BigEndian.AppendUint32(nil, uint32(len(frame)))
	if _, err := g.link.Write(append(b, frame...)); err != nil {
		g.t.Fatalf("the gateway ended the link: %v", err)
	}
}

// alivePort is where alive asks from; no case uses it.
const alivePort = 39999

// alive shows that the gateway still serves: its stack answers a ping, its resolver a question.
func (g *guest) alive() {
	g.t.Helper()
	ip := func(p layers.IPProtocol) *layers.IPv4 {
		return &layers.IPv4{Version: 4, TTL: 64, Protocol: p, SrcIP: pcapgen.Guest4.AsSlice(), DstIP: pcapgen.Gateway4.AsSlice()}
	}
	eth := &layers.Ethernet{SrcMAC: g.mac, DstMAC: pcapgen.GatewayMAC, EthernetType: layers.EthernetTypeIPv4}
	udp := &layers.UDP{SrcPort: alivePort, DstPort: 53}
	head := ip(layers.IPProtocolUDP)
	if err := udp.SetNetworkLayerForChecksum(head); err != nil {
		g.t.Fatal(err)
	}
	ask := gopacket.Payload("\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x05alive\x07invalid\x00\x00\x01\x00\x01")
	var frames [][]byte
	for _, ls := range [][]gopacket.SerializableLayer{
		{eth, ip(layers.IPProtocolICMPv4), &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(8, 0), Id: 9}, gopacket.Payload("alive")},
		{eth, head, udp, ask},
	} {
		buf := gopacket.NewSerializeBuffer()
		if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, ls...); err != nil {
			g.t.Fatal(err)
		}
		frames = append(frames, bytes.Clone(buf.Bytes()))
	}
	// As clients do, it asks again: after a flood the table of flows needs a moment.
	for end := time.Now().Add(replayWait); time.Now().Before(end); {
		for _, f := range frames {
			g.send(f)
		}
		if g.waitFor(time.Second, func() bool { return g.echoed && g.resolved }) {
			return
		}
	}
	g.t.Errorf("the gateway no longer serves: ping answered %v, question answered %v", g.echoed, g.resolved)
}
