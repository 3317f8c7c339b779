package review_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/msb-project/msb/capture"
	"github.com/msb-project/msb/gateway/gatewaytest"
	"github.com/msb-project/msb/internal/pcapgen"
)

// guest replays recorded frames on the guest's end of a link.
type guest struct {
	*wire
	world *gatewaytest.World
	mac   net.HardwareAddr
	link  net.Conn
	wg    sync.WaitGroup
}

func startGuest(t *testing.T, c *pcapgen.Case, file []byte, zone []string) *guest {
	t.Helper()
	g := &guest{wire: newWire(t), mac: macOf(t, file)}
	p, change := settings(t, c, g.wire, g.mac)
	g.world, g.link = gatewaytest.Open(t, p, change)
	fill(t, g.world.Internet, file, zone)
	g.wg.Go(func() { _, _ = io.Copy(io.Discard, g.link) }) // the tap has seen it
	return g
}

func (g *guest) close() {
	g.world.Close()
	_ = g.link.Close()
	g.wg.Wait()
}

// inject replays the guest's frames of a capture.
func (g *guest) inject(file []byte) {
	g.t.Helper()
	g.play(file, func(frame []byte, h *capture.Headers, ok bool) {
		if !ok || g.follow(frame, h) {
			g.send(frame)
		}
	})
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
	before := g.pings[pcapgen.Gateway4]
	echoed := func() bool { return g.pinged[pcapgen.Gateway4] > before }
	resolved := func() bool { return g.answers[alivePort] > 0 }
	// As clients do, it asks again: after a flood the table of flows needs a moment.
	for end := time.Now().Add(replayWait); time.Now().Before(end); {
		for _, f := range frames {
			g.send(f)
		}
		if g.waitFor(time.Second, func() bool { return echoed() && resolved() }) {
			return
		}
	}
	g.t.Errorf("the gateway no longer serves: ping answered %v, question answered %v", g.waitFor(0, echoed), g.waitFor(0, resolved))
}
