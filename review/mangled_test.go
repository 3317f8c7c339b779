package review_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/capture"
	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/gateway"
	"github.com/msb-project/msb/gateway/gatewaytest"
	"github.com/msb-project/msb/internal/pcapgen"
	"github.com/msb-project/msb/netstack"
	"github.com/msb-project/msb/review"
)

// mangledEnv asks for segments of which some are known to be reviewed otherwise: to look for such cases, not to pass.
const mangledEnv = "MSB_MANGLED"

// TestI16_RandomSegmentsAreReviewedAlike has a client without a stack send segments that overlap, contradict each other and
// lie. What the gateway's stack makes of them is what a review of the gateway's own capture has to judge.
func TestI16_RandomSegmentsAreReviewedAlike(t *testing.T) {
	t.Parallel()
	cases, compared := 0, int64(0)
	randomCases(t, 60, func(t *testing.T, seed uint64) {
		c := pcapgen.Mangled(rand.New(rand.NewPCG(seed, 2)), os.Getenv(mangledEnv) != "")
		file, zone := c.Capture()
		g := startRecordedGuest(t, &c, file, zone)
		g.inject(file)
		g.hangUp()
		cases++
		compared += g.compare(&c)
		if t.Failed() {
			g.show()
		}
	})
	if compared < int64(cases) {
		t.Errorf("%d verdicts were compared of %d cases", compared, cases)
	}
	t.Logf("%d verdicts compared of %d cases", compared, cases)
}

// recordedGuest is a guest of a gateway that records.
type recordedGuest struct {
	*guest
	path   string
	tap    *gateway.CaptureTap
	broken map[connection]bool // by a reset of the client's
	// disputed are connections whose handshake a segment with data or FIN completes, or another segment may break.
	// established are those whose handshake is complete.
	disputed, established map[connection]bool
}

func startRecordedGuest(t *testing.T, c *pcapgen.Case, file []byte, zone []string) *recordedGuest {
	t.Helper()
	g := &recordedGuest{
		guest: &guest{wire: newWire(t), mac: macOf(t, file)},
		path:  filepath.Join(t.TempDir(), "all.pcapng"), tap: gateway.NewCaptureTap(), broken: map[connection]bool{}, disputed: map[connection]bool{}, established: map[connection]bool{},
	}
	g.raw = true
	w, err := capture.Create(g.path, capture.Options{})
	if err != nil {
		t.Fatal(err)
	}
	g.tap.Start(w)
	p, change := settings(t, c, g.wire, g.mac)
	g.world, g.link = gatewaytest.Open(t, p, func(cfg *gateway.Config) {
		change(cfg)
		cfg.Capture = g.tap
	})
	fill(t, g.world.Internet, file, zone)
	g.wg.Go(g.listen)
	return g
}

// classify notes what each segment made of its connection.
func (g *recordedGuest) classify() {
	g.t.Helper()
	file, err := os.ReadFile(g.path)
	if err != nil {
		g.t.Fatal(err)
	}
	answered := map[connection]bool{}
	eachFrame(g.t, file, func(dir capture.Direction, _ []byte, h *capture.Headers, ok bool) {
		switch {
		case !ok || h.Transport != capture.TransportTCP:
		case dir == capture.FromGuest:
			c := connection{h.Src.Port(), h.Dst}
			g.said(c, h, answered[c])
		case h.Flags&capture.SYN != 0:
			answered[connection{h.Dst.Port(), h.Src}] = true
		}
	})
}

// said notes what a segment of the client's made of its connection.
func (g *recordedGuest) said(c connection, h *capture.Headers, answered bool) {
	at, handshake := h.Seq-1000*uint32(c.port), !g.established[c] // pcapgen begins there
	inside := at > 0 && at < 1<<16
	switch {
	case h.Flags&capture.RST != 0:
		g.broken[c] = g.broken[c] || inside
		g.disputed[c] = g.disputed[c] || handshake && inside
	case handshake && h.Flags&capture.SYN != 0:
		g.disputed[c] = g.disputed[c] || inside
	case h.Flags&(capture.SYN|capture.ACK) == capture.SYN: // it may open another, with another handshake
		g.disputed[c] = true
	case handshake && answered && inside && h.Flags&capture.ACK != 0:
		g.established[c] = true
		g.disputed[c] = g.disputed[c] || len(h.Payload) > 0 || h.Flags&capture.FIN != 0
	}
}

// listen gives the wire what the gateway sends: the gateway's tap is its capture.
func (g *recordedGuest) listen() {
	link := bufio.NewReader(g.link)
	for {
		var size [4]byte
		if _, err := io.ReadFull(link, size[:]); err != nil {
			return
		}
		frame := make([]byte, binary.BigEndian.Uint32(size[:]))
		if _, err := io.ReadFull(link, frame); err != nil {
			return
		}
		g.Frame(netstack.ToGuest, frame, "")
	}
}

// hangUp ends each connection in order, wherever its bytes end for the gateway's stack, and waits until the gateway has
// judged all of them and their requests.
func (g *recordedGuest) hangUp() {
	g.t.Helper()
	g.alive() // every SYN has come to the stack
	live := func() int { return g.world.Gateway.Stats().Link.TCPConnections }
	fin := false // it may have come before bytes that are on their way, so that it is sent again
	for end := time.Now().Add(replayWait); live() > 0 && time.Now().Before(end); {
		fin = !fin
		for c := range g.recorded {
			g.mu.Lock()
			n := g.numbers[c]
			g.mu.Unlock()
			g.send(g.end(c, n, fin))
			g.waitFor(10*time.Millisecond, func() bool { return live() == 0 || g.numbers[c] != n })
		}
	}
	if n := live(); n > 0 {
		g.t.Errorf("the gateway did not end %d connections that their clients left", n)
	}
}

// end is a segment that acknowledges everything, and with fin ends the client's side of a connection.
func (g *recordedGuest) end(c connection, n numbers, fin bool) []byte {
	g.t.Helper()
	ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolTCP, SrcIP: pcapgen.Guest4.AsSlice(), DstIP: c.peer.Addr().AsSlice()}
	tcp := &layers.TCP{SrcPort: layers.TCPPort(c.port), DstPort: layers.TCPPort(c.peer.Port()), Seq: n.ack, Ack: n.seq, FIN: fin, ACK: true, Window: 64240}
	if err := tcp.SetNetworkLayerForChecksum(ip); err != nil {
		g.t.Fatal(err)
	}
	buf := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		&layers.Ethernet{SrcMAC: g.mac, DstMAC: pcapgen.GatewayMAC, EthernetType: layers.EthernetTypeIPv4}, ip, tcp); err != nil {
		g.t.Fatal(err)
	}
	return bytes.Clone(buf.Bytes())
}

// compare ends the world and holds a review of its capture against its audit.
func (g *recordedGuest) compare(c *pcapgen.Case) int64 {
	g.t.Helper()
	g.close()
	if err := g.tap.Start(nil).Close(); err != nil {
		g.t.Fatal(err)
	}
	r, err := review.Run(g.t.Context(), review.Options{Captures: []string{g.path}, Policy: policyOf(g.t, c)})
	if err != nil || len(r.Damage) > 0 {
		g.t.Fatal(err, r.Damage)
	}
	g.classify()
	// A client that resets a connection may take its bytes from the gateway before it has read them (docs/review.md).
	// What completes a handshake may come to it behind what contradicts it, so that a review doesn't decide.
	n := compareBut(g.t, g.world.Audit, slices.Values(g.judgedFlows(r)), func(f *review.Flow, e *audit.Event) bool {
		c := connection{f.Src.Port(), f.Dst}
		return g.broken[c] && e.Reason == egress.ReasonUnreadable.String() || g.disputed[c] && f.Verdict.Action == review.Undecided
	})
	if live := verdictsOf(g.world.Audit); int(n) != live {
		g.t.Errorf("%d flows have a verdict in both, of %d that the gateway judged", n, live)
	}
	if slices.Contains(slices.Collect(maps.Values(g.disputed)), true) {
		return n // of such a connection it doesn't decide
	}
	compareQuestions(g.t, g.world.Audit, r, slices.Contains(slices.Collect(maps.Values(g.broken)), true))
	return n + compareRequests(g.t, g.world.Audit, r)
}

// judgedFlows are the flows of a review without refused ones that the gateway never had: a SYN that comes to a connection at its
// end is reset without being judged, which looks like a denial.
func (g *recordedGuest) judgedFlows(r *review.Report) (kept []review.Flow) {
	live, left := opened(g.world.Audit), map[ends]int{}
	for f := range r.Flows() {
		if f.Verdict != nil {
			left[ends{f.Proto, f.Src.Port(), f.Dst}]++
		}
	}
	for f := range r.Flows() {
		key := ends{f.Proto, f.Src.Port(), f.Dst}
		events := live[key]
		if f.Verdict == nil || f.Proto != "tcp" {
			kept = append(kept, f)
			continue
		}
		if left[key] <= len(events) || len(events) > 0 && f.Verdict.Action == events[0].Action && f.Verdict.Reason == events[0].Reason {
			kept = append(kept, f)
			live[key] = events[min(1, len(events)):]
		}
		left[key]--
	}
	return kept
}

// show logs what passed on the link.
func (g *recordedGuest) show() {
	g.t.Helper()
	file, err := os.ReadFile(g.path)
	if err != nil {
		g.t.Fatal(err)
	}
	eachFrame(g.t, file, func(dir capture.Direction, _ []byte, h *capture.Headers, ok bool) {
		if ok && h.Transport == capture.TransportTCP {
			g.t.Logf("%v flags %#x seq %d ack %d window %d, %d bytes %.60q", dir, h.Flags, h.Seq, h.Ack, h.Window, len(h.Payload), h.Payload)
		}
	})
	for _, e := range g.world.Audit.All() {
		g.t.Logf("%s %s %s %s", e.Kind, e.Action, e.Reason, e.Message)
	}
}
