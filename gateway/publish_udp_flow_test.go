package gateway

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/netstack"
	"github.com/msb-project/msb/policies"
)

// portLines keeps the lines about published ports.
type portLines struct {
	mu    sync.Mutex
	lines []audit.Event
}

// Emit implements audit.Sink.
func (p *portLines) Emit(e audit.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.Kind == audit.PortFlow {
		p.lines = append(p.lines, e)
	}
}

func (p *portLines) all() []audit.Event {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.lines)
}

func parsePolicy(t *testing.T, text string) *policies.Policy {
	t.Helper()
	p, err := policies.Parse("p.toml", []byte("version = 1\n"+text), nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// newTestGateway is a gateway without a guest on its link.
func newTestGateway(t *testing.T, policy string, sink audit.Sink, change func(*Config)) *Gateway {
	t.Helper()
	cfg := Config{Sandbox: "test", Policy: parsePolicy(t, policy), Audit: sink, Link: netstack.Config{GuestMAC: net.HardwareAddr{2, 0, 0, 0, 0, 2}}}
	if change != nil {
		change(&cfg)
	}
	g, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Close() })
	return g
}

const officeRule = "[[ingress.allow]]\nname = \"office\"\ncidrs = [\"192.168.10.0/24\", \"fd00:10::/64\"]\n"

var officeClient = netip.MustParseAddrPort("192.168.10.7:5000")

// TestI15_UDPClientsNeedAnIngressRule: no datagram of another client reaches the guest. The twin has a rule.
func TestI15_UDPClientsNeedAnIngressRule(t *testing.T) {
	t.Parallel()
	for policy, ok := range map[string]bool{"": false, officeRule: true} {
		lines := new(portLines)
		g := newTestGateway(t, policy, lines, nil)
		p := newUDPPort(g, nil, 5353)
		ctx, cancel := context.WithCancel(t.Context())
		f := p.flow(ctx, officeClient)
		cancel()
		p.serving.Wait()
		if (f != nil) != ok {
			t.Errorf("%q: a flow %v", policy, f != nil)
		}
		got := lines.all()
		if len(got) != 1 || got[0].Client != officeClient || got[0].Port != 5353 || got[0].Proto != "udp" || (got[0].Action == "allow") != ok || (got[0].Rule == "office") != ok {
			t.Errorf("%q: the audit log says %+v", policy, got)
		}
		if g.inbound.udp.taken != 0 {
			t.Errorf("%d places stay taken", g.inbound.udp.taken)
		}
	}
}

// TestI1_UDPClientsAboveTheBoundAreLogged as what the bound refused, and not as what a rule let in.
func TestI1_UDPClientsAboveTheBoundAreLogged(t *testing.T) {
	t.Parallel()
	lines := new(portLines)
	g := newTestGateway(t, officeRule, lines, nil)
	for range maxInboundUDP {
		if !g.inbound.udp.take(time.Now()) {
			t.Fatal("no room")
		}
	}
	if newUDPPort(g, nil, 5353).flow(t.Context(), officeClient) != nil {
		t.Error("one flow more than the bound")
	}
	got := lines.all()
	if len(got) != 1 || got[0].Action != "deny" || got[0].Reason != "limit" || got[0].Rule != "" || !strings.Contains(got[0].Message, "as many UDP flows") {
		t.Errorf("the audit log says %+v", got)
	}
}

// TestFailedUDPFlowsGiveTheirPlaceBack: the stack makes no socket any more.
func TestFailedUDPFlowsGiveTheirPlaceBack(t *testing.T) {
	t.Parallel()
	lines := new(portLines)
	g := newTestGateway(t, officeRule, lines, nil)
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	if newUDPPort(g, nil, 5353).flow(t.Context(), officeClient) != nil {
		t.Error("a flow without a stack")
	}
	if got := lines.all(); len(got) != 1 || got[0].Message == "" || g.inbound.udp.taken != 0 {
		t.Errorf("%d places stay taken, the audit log says %+v", g.inbound.udp.taken, got)
	}
}

// TestPodsUDPServersSeeTheirClients: a pod's server sees who sent a datagram. The twin is a published port, whose server sees the
// gateway.
func TestPodsUDPServersSeeTheirClients(t *testing.T) {
	t.Parallel()
	for _, pod := range []bool{true, false} {
		g := newTestGateway(t, officeRule, nil, func(c *Config) {
			if pod {
				c.Pod = netip.MustParseAddr("192.168.127.2")
			}
		})
		ctx, cancel := context.WithCancel(t.Context())
		p := newUDPPort(g, nil, 5353)
		f := p.flow(ctx, officeClient)
		if f == nil {
			t.Fatal("no flow")
		}
		want := g.Link().Gateway4
		if pod {
			want = officeClient.Addr()
		}
		if got := clientOf(f.conn().LocalAddr()).Addr(); got != want {
			t.Errorf("pod %v: the guest sees %s, want %s", pod, got, want)
		}
		cancel()
		p.serving.Wait()
	}
}

// TestI16_ReloadsEndRefusedUDPClients takes the rule away under a flow; in the twin it stays.
func TestI16_ReloadsEndRefusedUDPClients(t *testing.T) {
	t.Parallel()
	for _, client := range []string{"192.168.10.7:5000", "[fd00:10::7]:5000"} { // the second claims an address of this machine's
		g := &Gateway{classifier: egress.NewClassifier()}
		g.inbound.g = g
		g.classifier.SetHost(netip.MustParseAddr("fd00:10::7"))
		g.policy.Store(parsePolicy(t, officeRule))
		guest, far := net.Pipe()
		defer far.Close()
		f := &udpInbound{guest: guest, begin: time.Now()}
		f.ev.Client = netip.MustParseAddrPort(client)
		f.heard(time.Now())
		ended := make(chan struct{})
		go func() { defer close(ended); (&udpPort{g: g, idle: inboundIdle}).answers(t.Context(), f) }()
		for g.inbound.clients.count() == 0 {
			time.Sleep(time.Millisecond)
		}
		if n := g.inbound.revokeClients(); n != 0 {
			t.Errorf("%s: a client that the policy lets in was ended", client)
		}
		g.policy.Store(policies.Default())
		if n := g.inbound.revokeClients(); n != 1 {
			t.Errorf("%s: %d clients were ended, want 1", client, n)
			_ = far.Close()
		}
		if <-ended; !strings.Contains(f.ev.Message, "no longer") {
			t.Errorf("%s: the audit log says %+v", client, f.ev)
		}
	}
}

// TestUsedUDPPortFlowsStay: a datagram either way puts the end of a flow off, on a fake clock.
func TestUsedUDPPortFlowsStay(t *testing.T) {
	t.Parallel()
	closed, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close() // what is sent there is lost
	for _, byClient := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			g := &Gateway{classifier: egress.NewClassifier()}
			g.inbound.g = g
			g.policy.Store(policies.Default())
			guest, far := net.Pipe()
			f := &udpInbound{guest: guest, begin: time.Now()}
			f.ev.Client = netip.MustParseAddrPort("127.0.0.1:1")
			f.heard(f.begin)
			ended := make(chan time.Duration, 1)
			go func() {
				(&udpPort{g: g, conn: closed, idle: inboundIdle}).answers(t.Context(), f)
				ended <- time.Since(f.begin)
			}()
			time.Sleep(inboundIdle - time.Second)
			if byClient {
				f.heard(time.Now())
			} else if _, err := far.Write([]byte("x")); err != nil {
				t.Error(err)
			}
			if after := <-ended; after != 2*inboundIdle-time.Second || f.ev.Message != "" {
				t.Errorf("by the client %v: it ended after %v, %q", byClient, after, f.ev.Message)
			}
			_ = far.Close()
		})
	}
}

// refuses is a socket at which nothing listens.
type refuses struct {
	net.Conn
	read func() error
}

// SetReadDeadline implements net.Conn.
func (refuses) SetReadDeadline(time.Time) error { return nil }

// Close implements net.Conn.
func (refuses) Close() error { return nil }

// Read implements net.Conn.
func (r refuses) Read([]byte) (int, error) { return 0, r.read() }

// TestI5_PodsLoopbackUDPServersAreTheirsAlone: for other clients the agent is not asked. It is asked too where the refusal was seen by
// the client's next datagram, which wakes who waits for answers.
func TestI5_PodsLoopbackUDPServersAreTheirsAlone(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		client string
		pod    bool
		asked  bool
	}{{"127.0.0.1:5000", true, true}, {"10.213.8.9:5000", true, false}, {"192.168.10.7:5000", false, true}} {
		for _, woken := range []bool{false, true} {
			asked := 0
			g := &Gateway{classifier: egress.NewClassifier()}
			g.inbound.g = g
			g.cfg.Forward = func(context.Context, egress.Proto, uint16) (uint16, error) {
				asked++
				return 0, errors.New("none listens")
			}
			if c.pod {
				g.cfg.Pod = netip.MustParseAddr("10.213.7.5")
			}
			policy := officeRule
			if c.pod {
				policy = ""
			}
			g.policy.Store(parsePolicy(t, policy))
			f := &udpInbound{begin: time.Now()}
			f.guest = refuses{read: func() error {
				if woken && !f.refused.Swap(true) {
					return os.ErrDeadlineExceeded
				}
				return syscall.ECONNREFUSED
			}}
			f.ev.Client = netip.MustParseAddrPort(c.client)
			f.heard(time.Now())
			(&udpPort{g: g, idle: inboundIdle}).answers(t.Context(), f)
			if (asked == 1) != c.asked || asked > 1 || strings.Contains(f.ev.Message, "none listens") != c.asked || f.ev.Message == "" {
				t.Errorf("%+v, woken %v: the agent was asked %d times, and the audit log says %q", c, woken, asked, f.ev.Message)
			}
		}
	}
}

// collecting is a socket that keeps what is sent.
type collecting struct {
	net.Conn
	got    []string
	closed bool
}

// Write implements net.Conn.
func (c *collecting) Write(b []byte) (int, error) {
	c.got = append(c.got, string(b))
	return len(b), nil
}

// Close implements net.Conn.
func (c *collecting) Close() error { c.closed = true; return nil }

// TestFirstDatagramsAreSentAgain as they were, once, when the guest's end is replaced; its old one is closed, and so is the new one of
// a flow that is over.
func TestFirstDatagramsAreSentAgain(t *testing.T) {
	t.Parallel()
	old, fresh, last := new(collecting), new(collecting), new(collecting)
	f := &udpInbound{guest: old}
	buf := make([]byte, 3)
	for _, text := range []string{"one", "two"} {
		copy(buf, text) // as the port's own buffer is used again
		f.send(buf)
	}
	f.replace(fresh)
	f.send([]byte("new"))
	if want := []string{"one", "two", "new"}; !slices.Equal(fresh.got, want) || !old.closed || fresh.closed {
		t.Errorf("the new end got %q, want %q; the old one is closed: %v", fresh.got, want, old.closed)
	}
	if kept := f.settle(); len(kept) != 0 {
		t.Errorf("%q is kept of a flow that was replaced", kept)
	}
	f.close()
	f.replace(last)
	if !fresh.closed || !last.closed || len(last.got) > 0 {
		t.Errorf("a flow that is over goes on: %+v, %+v", fresh, last)
	}
}

// TestAnsweredFlowsKeepNoDatagrams: their server listens where they are sent.
func TestAnsweredFlowsKeepNoDatagrams(t *testing.T) {
	t.Parallel()
	at, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer at.Close()
	g := &Gateway{classifier: egress.NewClassifier()}
	g.inbound.g = g
	g.policy.Store(policies.Default())
	guest, far := net.Pipe()
	f := &udpInbound{guest: guest, begin: time.Now(), unanswered: [][]byte{[]byte("first")}}
	f.ev.Client = at.LocalAddr().(*net.UDPAddr).AddrPort()
	f.heard(time.Now())
	ended := make(chan struct{})
	go func() { defer close(ended); (&udpPort{g: g, conn: at, idle: inboundIdle}).answers(t.Context(), f) }()
	if _, err := far.Write([]byte("answer")); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 10)
	if n, err := at.Read(buf); err != nil || string(buf[:n]) != "answer" {
		t.Errorf("the client got %q, %v", buf[:n], err)
	}
	if kept := f.settle(); len(kept) != 0 {
		t.Errorf("%q is kept", kept)
	}
	_ = far.Close()
	if <-ended; f.ev.BytesUp != 6 || f.ev.Message != "" {
		t.Errorf("the audit log says %+v", f.ev)
	}
}

// TestFiguresOfBudgetsAreToldApart: what is used, and what may be.
func TestFiguresOfBudgetsAreToldApart(t *testing.T) {
	t.Parallel()
	g := newTestGateway(t, "[limits]\negress_bytes = \"1000\"\n", nil, func(c *Config) { c.EgressUsed = 7 })
	if s := g.Stats(); s.EgressUsed != 7 || s.EgressLimit != 1000 {
		t.Errorf("%d of %d", s.EgressUsed, s.EgressLimit)
	}
}
