package gateway_test

import (
	"context"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/miekg/dns"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/capture"
	"github.com/msb-project/msb/gateway"
	"github.com/msb-project/msb/gateway/gatewaytest"
	"github.com/msb-project/msb/netstack"
	"github.com/msb-project/msb/netstack/frameguard"
)

// attemptsPolicy has a destination for each way in which a flow is judged.
const attemptsPolicy = `
[[egress.allow]]
name = "relay"
cidrs = ["93.184.215.14/32"]
ports = [22, 23]
protocol = "tcp"
[[egress.allow]]
name = "datagrams"
cidrs = ["93.184.215.14/32"]
ports = [9]
protocol = "udp"
[[egress.allow]]
name = "pings"
cidrs = ["93.184.215.14/32"]
protocol = "icmp"
[[egress.allow]]
name = "web"
hosts = ["web.example.com"]
protocol = "tls"
[limits]
dns_per_second = 100000
`

// attempts makes attempts of a guest's; each of ways makes one, and ends it in its own way.
type attempts struct {
	t    *testing.T
	w    *gatewaytest.World
	rnd  *rand.Rand
	port uint16 // of the next raw frames
	held []net.Conn

	repeats *repeatedSYNs
}

// repeatedSYNs counts the SYNs that the guest's own stack sends again, because a machine is slow: one that crosses
// the reset of the first is an attempt of its own.
type repeatedSYNs struct {
	mu   sync.Mutex
	seen map[uint16]bool
	n    uint64
}

var _ netstack.FrameTap = (*repeatedSYNs)(nil)

// Frame implements netstack.FrameTap.
func (r *repeatedSYNs) Frame(dir netstack.Direction, frame []byte, _ frameguard.Reason) {
	h, ok := capture.Decode(frame)
	const ephemeral = 16000
	if dir != netstack.FromGuest || !ok || h.Flags&(capture.SYN|capture.ACK) != capture.SYN || h.Src.Port() < ephemeral {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen[h.Src.Port()] {
		r.n++
	}
	r.seen[h.Src.Port()] = true
}

// count is how many there were.
func (r *repeatedSYNs) count() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.n
}

// tcp injects a bare segment of the flow from the current raw port.
func (a *attempts) tcp(dst string, seq uint32, flags func(*layers.TCP)) {
	at := netip.MustParseAddrPort(dst)
	l := a.w.Gateway.Link()
	ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolTCP, SrcIP: l.Guest4.AsSlice(), DstIP: at.Addr().AsSlice()}
	seg := &layers.TCP{SrcPort: layers.TCPPort(a.port), DstPort: layers.TCPPort(at.Port()), Seq: seq, Window: 1000}
	flags(seg)
	_ = seg.SetNetworkLayerForChecksum(ip)
	a.w.Guest.Inject(a.frame(ip, seg))
}

func (a *attempts) udp(dst string, data string) {
	at := netip.MustParseAddrPort(dst)
	l := a.w.Gateway.Link()
	ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolUDP, SrcIP: l.Guest4.AsSlice(), DstIP: at.Addr().AsSlice()}
	d := &layers.UDP{SrcPort: layers.UDPPort(a.port), DstPort: layers.UDPPort(at.Port())}
	_ = d.SetNetworkLayerForChecksum(ip)
	a.w.Guest.Inject(a.frame(ip, d, gopacket.Payload(data)))
}

func (a *attempts) frame(ls ...gopacket.SerializableLayer) []byte {
	l := a.w.Gateway.Link()
	eth := &layers.Ethernet{SrcMAC: a.w.Guest.MAC(), DstMAC: l.GatewayMAC, EthernetType: layers.EthernetTypeIPv4}
	buf := gopacket.NewSerializeBuffer()
	opts := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(buf, opts, append([]gopacket.SerializableLayer{eth}, ls...)...); err != nil {
		a.t.Fatal(err)
	}
	return buf.Bytes()
}

func syn(s *layers.TCP) { s.SYN = true }
func rst(s *layers.TCP) { s.RST = true }

// say connects, writes and ends the connection as end says.
func (a *attempts) say(dst, text string, end func(net.Conn)) {
	at := netip.MustParseAddrPort(dst)
	c, err := a.w.Dial(at.Addr(), at.Port())
	if err != nil {
		return // refused, or the limit: that is an end too
	}
	_, _ = io.WriteString(c, text)
	end(c)
}

func shut(c net.Conn) { _ = c.Close() }

// abort resets the connection.
func abort(c net.Conn) {
	_ = c.SetReadDeadline(time.Now().Add(-time.Second))
	if r, ok := c.(interface{ CloseRead() error }); ok {
		_ = r.CloseRead()
	}
	_ = c.Close()
}

func (a *attempts) hold(c net.Conn) { a.held = append(a.held, c) }

const (
	cutHello = "\x16\x03\x01\x02\x00\x01\x00\x01\xfc"
	query    = "\x00\x1f\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x05alive\x07invalid"
)

// ways are the ends that an attempt can have, by name. Each leaves exactly one line.
func (a *attempts) ways() map[string]func() {
	const peeked, deniedTCP, resolver = site + ":443", "45.33.32.156:80", "9.9.9.9:53"
	proxy := netip.AddrPortFrom(a.w.Gateway.Link().Gateway4, gateway.ProxyPort).String()
	m := map[string]func(){
		"tcp denied":               func() { a.say(deniedTCP, "", shut) },
		"tcp relayed":              func() { a.say(site+":22", "hi", shut) },
		"tcp relayed, kept open":   func() { a.say(site+":22", "hi", a.hold) },
		"tcp allowed, refused":     func() { a.say(site+":23", "hi", shut) },
		"syn alone":                func() { a.tcp(peeked, 1, syn) },
		"syn, reset":               func() { a.tcp(peeked, 1, syn); a.tcp(peeked, 2, rst) },
		"syn twice":                func() { a.tcp(peeked, 1, syn); a.tcp(peeked, 1, syn) },
		"syn denied, reset":        func() { a.tcp(deniedTCP, 1, syn); a.tcp(deniedTCP, 2, rst) },
		"syn allowed, reset":       func() { a.tcp(site+":22", 1, syn); a.tcp(site+":22", 2, rst) },
		"no byte, closed":          func() { a.say(peeked, "", shut) },
		"no byte, reset":           func() { a.say(peeked, "", abort) },
		"no byte, kept open":       func() { a.say(peeked, "", a.hold) },
		"half a hello, closed":     func() { a.say(peeked, cutHello, shut) },
		"half a hello, reset":      func() { a.say(peeked, cutHello, abort) },
		"half a hello, kept":       func() { a.say(peeked, cutHello, a.hold) },
		"no hello":                 func() { a.say(peeked, "SSH-2.0-x\r\n", shut) },
		"proxy: syn, reset":        func() { a.tcp(proxy, 1, syn); a.tcp(proxy, 2, rst) },
		"proxy: no byte":           func() { a.say(proxy, "", shut) },
		"proxy: no byte, kept":     func() { a.say(proxy, "", a.hold) },
		"proxy: half a head":       func() { a.say(proxy, "CONNECT x", shut) },
		"proxy: half a head, kept": func() { a.say(proxy, "CONNECT x", a.hold) },
		"proxy: no request":        func() { a.say(proxy, "\x16\x03\x01\x02\x00", shut) },
		"proxy: denied":            func() { a.say(proxy, "CONNECT 45.33.32.156:80 HTTP/1.1\r\nHost: x\r\n\r\n", a.hold) },
		"dns tcp: syn, reset":      func() { a.tcp(resolver, 1, syn); a.tcp(resolver, 2, rst) },
		"dns tcp: no byte":         func() { a.say(resolver, "", shut) },
		"dns tcp: no byte, kept":   func() { a.say(resolver, "", a.hold) },
		"dns tcp: http":            func() { a.say(resolver, "GET / HTTP/1.1\r\n\r\n", shut) },
		"dns tcp: one byte":        func() { a.say(resolver, "\x00", shut) },
		"dns tcp: half a question": func() { a.say(resolver, query, shut) },
		"dns tcp: half, reset":     func() { a.say(resolver, query, abort) },
		"dns tcp: question":        func() { a.say(resolver, query+"\x00\x00\x01\x00\x01", shut) },
		"dns udp: question":        func() { a.udp(resolver, query[2:]+"\x00\x00\x01\x00\x01") },
		"dns udp: rubbish":         func() { a.udp(resolver, "rubbish") },
		"dns udp: an answer":       func() { a.udp(resolver, "\x12\x34\x81\x80\x00\x01\x00\x00\x00\x00\x00\x00") },
		"dns udp: empty":           func() { a.udp(resolver, "") },
		"udp denied":               func() { a.udp("45.33.32.156:9", "x") },
		"udp denied, again":        func() { a.udp("45.33.32.156:9", "x"); a.udp("45.33.32.156:9", "x") },
		"udp relayed":              func() { a.udp(site+":9", "x") },
		"udp announcement":         func() { a.udp("45.33.32.156:5353", "x") },
	}
	for name, dst := range map[string]string{"ping denied": "45.33.32.156", "ping allowed": site} {
		m[name] = func() {
			ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
			defer cancel()
			_ = a.w.Guest.Ping(ctx, netip.MustParseAddr(dst), []byte("x"))
		}
	}
	return m
}

// verdicts is what the log accounts for: flows, questions and bounds.
func verdicts(w *gatewaytest.World) (n uint64) {
	for _, kind := range []audit.Kind{audit.FlowOpen, audit.DNSQuery, audit.Limit} {
		for _, e := range w.Audit.Events(kind) {
			n += max(1, e.Count)
		}
	}
	return n
}

func startAttempts(t *testing.T, policy string, seed uint64) *attempts {
	t.Helper()
	repeats := &repeatedSYNs{seen: map[uint16]bool{}}
	w := gatewaytest.StartWith(t, gatewaytest.Policy(t, policy), func(cfg *gateway.Config) { cfg.Link.Tap = repeats })
	w.Record("web.example.com. 60 IN A " + site)
	w.Serve(site+":22", func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	w.ServeUDP(site+":9", func(b []byte) []byte { return b })
	a := &attempts{t: t, w: w, repeats: repeats, rnd: rand.New(rand.NewPCG(seed, 1)), port: 1024}
	w.Lookup("web.example.com") // so that :443 is peeked at: two questions less below
	return a
}

// end closes the gateway once it has read every frame.
func (a *attempts) end() {
	a.t.Helper()
	a.w.Resolve("localhost", dns.TypeA) // behind every frame on the link
	if err := a.w.Gateway.Close(); err != nil {
		a.t.Fatal(err)
	}
	for _, c := range a.held {
		_ = c.Close()
	}
}

func (a *attempts) next() {
	a.port++
	a.w.Guest.Raw(a.port)
}

// TestI1_EachEndLeavesOneLine makes one attempt of each way by itself.
func TestI1_EachEndLeavesOneLine(t *testing.T) {
	t.Parallel()
	names := (&attempts{t: t, w: gatewaytest.Start(t, "")}).ways()
	for name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := startAttempts(t, attemptsPolicy, 0)
			a.next()
			a.ways()[name]()
			a.end()
			if n := verdicts(a.w) - 2; n < 1 || n > 1+a.repeats.count() {
				t.Errorf("%d lines, want one: %+v", n, a.w.Audit.All())
			}
		})
	}
}

// TestI1_AttemptsEqualCounts makes random attempts, several at a time.
func TestI1_AttemptsEqualCounts(t *testing.T) {
	t.Parallel()
	for range 2 {
		seed := rand.Uint64()
		a := startAttempts(t, attemptsPolicy, seed)
		var names []string
		for name := range a.ways() {
			names = append(names, name)
		}
		var wg sync.WaitGroup
		made := map[string]int{}
		const total, workers = 300, 3
		for worker := range workers {
			b := &attempts{t: t, w: a.w, rnd: rand.New(rand.NewPCG(seed, uint64(worker))), port: uint16(1024 + 2000*worker)}
			ways := b.ways()
			var picked []string
			for range total / workers {
				name := names[b.rnd.IntN(len(names))]
				picked = append(picked, name)
				made[name]++
			}
			wg.Go(func() {
				for _, name := range picked {
					b.next()
					ways[name]()
				}
			})
			defer func() {
				for _, c := range b.held {
					_ = c.Close()
				}
			}()
		}
		wg.Wait()
		a.end()
		if n := verdicts(a.w) - 2; n < total || n > total+a.repeats.count() {
			t.Errorf("seed %d: %d attempts are accounted for, want %d; made %v", seed, n, total, made)
		}
	}
}

// TestI1_RefusedAtTheLimitIsCounted opens connections at a peeked port and says nothing on them: those that the
// bound allows end with the gateway, the others are refused at once.
func TestI1_RefusedAtTheLimitIsCounted(t *testing.T) {
	t.Parallel()
	a := startAttempts(t, attemptsPolicy+"tcp_connections = 512\n", 0)
	const tried = 722
	for i := range tried {
		a.next()
		a.tcp(site+":443", uint32(i+1), syn)
	}
	a.end()
	if n := verdicts(a.w) - 2; n != tried {
		t.Errorf("%d connections are accounted for, want %d", n, tried)
	}
	if n := len(a.w.Audit.Events(audit.Limit)); n == 0 {
		t.Error("no line reports the bound")
	}
}

// TestOffloadedChecksumsAreTakenOnRequest: a guest that leaves checksums to its card reaches nothing, which is said
// once with the remedy, or all that it may.
func TestOffloadedChecksumsAreTakenOnRequest(t *testing.T) {
	t.Parallel()
	const sent = 100
	for _, offload := range []bool{false, true} {
		w := gatewaytest.StartWith(t, gatewaytest.Policy(t, attemptsPolicy), func(cfg *gateway.Config) { cfg.Link.PartialChecksums = offload })
		a := &attempts{t: t, w: w, port: 1024}
		for range sent {
			a.next()
			l := w.Gateway.Link()
			ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolUDP, SrcIP: l.Guest4.AsSlice(), DstIP: []byte{45, 33, 32, 156}}
			d := &layers.UDP{SrcPort: layers.UDPPort(a.port), DstPort: 9}
			_ = d.SetNetworkLayerForChecksum(ip)
			frame := a.frame(ip, d)
			sum := uint32(17 + 8) // over addresses, protocol and length
			for i := 26; i < 34; i += 2 {
				sum += uint32(frame[i])<<8 | uint32(frame[i+1])
			}
			sum = sum&0xffff + sum>>16
			frame[40], frame[41] = byte(sum>>8), byte(sum)
			w.Guest.Inject(frame)
		}
		a.end()
		flows, drops, advice := uint64(0), uint64(0), 0
		for _, e := range w.Audit.Events(audit.FlowOpen) {
			flows += max(1, e.Count)
		}
		for _, e := range w.Audit.Events(audit.LinkDrop) {
			if drops += e.Count; e.Action == "" {
				advice++
				if !strings.Contains(e.Message, "--offload") {
					t.Errorf("%q names no remedy", e.Message)
				}
			}
		}
		if offload && (flows != sent || drops != 0 || advice != 0) || !offload && (flows != 0 || drops != sent || advice != 1) {
			t.Errorf("offload %v: %d flows, %d frames dropped, %d pieces of advice", offload, flows, drops, advice)
		}
	}
}

// TestWrongChecksumsGetOneAdvice: the frames are counted singly, or many together as at the link's end.
func TestWrongChecksumsGetOneAdvice(t *testing.T) {
	t.Parallel()
	for _, reason := range []frameguard.Reason{frameguard.DropPartial.Reason(), frameguard.DropChecksum.Reason()} {
		for _, tc := range []struct {
			counts []int64
			advice int
		}{{[]int64{2, 2}, 0}, {[]int64{100}, 1}, {[]int64{10, 30, 100, 1}, 1}} {
			w := gatewaytest.Start(t, attemptsPolicy)
			for _, n := range tc.counts {
				w.Gateway.Dropped(reason, n)
			}
			advice := 0
			for _, e := range w.Audit.Events(audit.LinkDrop) {
				if e.Action == "" {
					advice++
				}
			}
			if advice != tc.advice {
				t.Errorf("%s, %v: %d pieces of advice, want %d", reason, tc.counts, advice, tc.advice)
			}
		}
	}
}
