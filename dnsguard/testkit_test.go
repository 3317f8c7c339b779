package dnsguard

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
	"go.uber.org/goleak"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/policies"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testJudge allows names by pattern and addresses by egress's classifier, as
// the engine does, with switches for the rest.
type testJudge struct {
	allow   []hostname.Pattern
	deny    []hostname.Pattern
	private []netip.Prefix
	quic    bool
}

var _ Judge = (*testJudge)(nil)

func judgeOf(patterns ...string) *testJudge {
	j := &testJudge{}
	for _, p := range patterns {
		j.allow = append(j.allow, hostname.MustParsePattern(p))
	}
	return j
}

func (j *testJudge) DecideName(n hostname.Name) egress.Verdict {
	for _, p := range j.deny {
		if p.Match(n) {
			return egress.Verdict{Reason: egress.ReasonDenyRule, Rule: "denied " + p.String(), Name: n}
		}
	}
	for _, p := range j.allow {
		if p.Match(n) {
			return egress.Verdict{Action: egress.Allow, Reason: egress.ReasonRule, Rule: "allow " + p.String(), Name: n}
		}
	}
	return egress.Verdict{Reason: egress.ReasonNoRule, Name: n}
}

func (j *testJudge) AllowsAddr(n hostname.Name, a netip.Addr) egress.Verdict {
	for _, p := range j.private {
		if p.Contains(a.Unmap()) {
			return egress.Verdict{Action: egress.Allow, Reason: egress.ReasonRule, Name: n, Addr: a}
		}
	}
	if c := egress.Classify(a); !c.Public() {
		return egress.Verdict{Reason: egress.ReasonSpecialAddress, Class: c, Name: n, Addr: a}
	}
	return egress.Verdict{Action: egress.Allow, Reason: egress.ReasonRule, Name: n, Addr: a}
}

func (j *testJudge) Decide(*egress.Flow) egress.Verdict {
	if j.quic {
		return egress.Verdict{Action: egress.Allow}
	}
	return egress.Verdict{Reason: egress.ReasonQUIC}
}

// testClock is a clock that only tests move.
type testClock struct{ now atomic.Int64 }

func (c *testClock) read() time.Duration      { return time.Duration(c.now.Load()) }
func (c *testClock) advance(by time.Duration) { c.now.Add(int64(by)) }

// recorder keeps audit events.
type recorder struct {
	mu     sync.Mutex
	events []audit.Event
}

func (r *recorder) Emit(e audit.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

func (r *recorder) kind(k audit.Kind) (found []audit.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if e.Kind == k {
			found = append(found, e)
		}
	}
	return found
}

// authority is a real DNS server on loopback, UDP and TCP, that plays whatever
// handle says, attacker included.
type authority struct {
	addr    netip.AddrPort
	asked   atomic.Int64
	handler atomic.Pointer[dns.HandlerFunc]
}

func newAuthority(t testing.TB, handle dns.HandlerFunc) *authority {
	t.Helper()
	a := &authority{}
	a.handler.Store(&handle)
	pc, l := listenBoth(t)
	a.addr = netip.MustParseAddrPort(pc.LocalAddr().String())
	serve := dns.HandlerFunc(func(w dns.ResponseWriter, m *dns.Msg) {
		a.asked.Add(1)
		(*a.handler.Load())(w, m)
	})
	var wg sync.WaitGroup
	t.Cleanup(wg.Wait) // runs after the shutdowns
	for _, s := range []*dns.Server{{PacketConn: pc, Handler: serve}, {Listener: l, Handler: serve}} {
		started := make(chan struct{})
		s.NotifyStartedFunc = func() { close(started) }
		wg.Go(func() { _ = s.ActivateAndServe() })
		<-started
		t.Cleanup(func() { _ = s.Shutdown() })
	}
	return a
}

// listenBoth listens on one port over UDP and TCP.
func listenBoth(t testing.TB) (net.PacketConn, net.Listener) {
	t.Helper()
	for range 20 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		if pc, err := net.ListenPacket("udp", l.Addr().String()); err == nil {
			return pc, l
		}
		_ = l.Close()
	}
	t.Fatal("no port is free for both UDP and TCP")
	return nil, nil
}

// records answers every question with the zone-file lines whose owner and type
// fit, and the CNAME lines on the way, in order.
func records(lines ...string) dns.HandlerFunc {
	var rrs []dns.RR
	for _, line := range lines {
		rr, err := dns.NewRR(line)
		if err != nil {
			panic(err)
		}
		rrs = append(rrs, rr)
	}
	return func(w dns.ResponseWriter, m *dns.Msg) {
		reply := new(dns.Msg).SetReply(m)
		q := m.Question[0]
		current := dns.CanonicalName(q.Name)
		exists := false
		for range 20 {
			next := ""
			for _, rr := range rrs {
				if rr.Header().Name != current {
					continue
				}
				exists = true
				if cname, ok := rr.(*dns.CNAME); ok && q.Qtype != dns.TypeCNAME {
					next = cname.Target
					reply.Answer = append(reply.Answer, dns.Copy(rr))
				} else if rr.Header().Rrtype == q.Qtype {
					reply.Answer = append(reply.Answer, dns.Copy(rr))
				}
			}
			if next == "" {
				break
			}
			current = next
		}
		if len(reply.Answer) == 0 {
			if !exists {
				reply.Rcode = dns.RcodeNameError
			}
			soa, _ := dns.NewRR("example. 300 IN SOA ns.example. host.example. 1 2 3 4 60")
			reply.Ns = append(reply.Ns, soa)
		}
		_ = w.WriteMsg(reply)
	}
}

// kit is a guard with everything around it.
type kit struct {
	*Guard
	clock *testClock
	audit *recorder
	auth  *authority
	judge *testJudge
	// dialled lists what was dialled, as "udp 192.0.2.53:53".
	mu      sync.Mutex
	dialled []string
}

// upstreamAddr is the resolver that test policies name; dials to it end at the
// kit's authority.
const upstreamAddr = "192.0.2.53:53"

func newKit(t testing.TB, judge *testJudge, handle dns.HandlerFunc, change ...func(*Config)) *kit {
	t.Helper()
	k := &kit{clock: &testClock{}, audit: &recorder{}, judge: judge}
	k.clock.advance(time.Hour)
	if handle == nil {
		handle = records()
	}
	k.auth = newAuthority(t, handle)
	p := policies.Default()
	p.DNS.Servers = []policies.Server{{Kind: policies.ServerUDP, Addr: netip.MustParseAddrPort(upstreamAddr)}}
	p.Limits.DNSPerSecond = 0
	cfg := Config{
		Sandbox: "test",
		Policy:  p,
		Judge:   judge,
		Audit:   k.audit,
		HasIPv6: func() bool { return true },
		Dialer:  k.dial,
		clock:   k.clock.read,
	}
	for _, c := range change {
		c(&cfg)
	}
	g, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	k.Guard = g
	t.Cleanup(func() { _ = g.Close() })
	return k
}

func (k *kit) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	k.mu.Lock()
	k.dialled = append(k.dialled, network+" "+addr)
	k.mu.Unlock()
	return (&net.Dialer{}).DialContext(ctx, network, k.auth.addr.String())
}

// ask asks as a guest with EDNS does.
func (k *kit) ask(t testing.TB, name string, qtype uint16) (*dns.Msg, Explanation) {
	t.Helper()
	m := new(dns.Msg).SetQuestion(dns.Fqdn(name), qtype)
	m.SetEdns0(1232, false)
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	answer, why := k.Answer(ctx, m)
	if answer == nil {
		t.Fatalf("%s %s: no answer: %+v", name, dns.TypeToString[qtype], why)
	}
	return answer, why
}

// ede returns the Extended DNS Error of an answer, and false if it has none.
func ede(m *dns.Msg) (uint16, string, bool) {
	opt := m.IsEdns0()
	if opt == nil {
		return 0, "", false
	}
	for _, o := range opt.Option {
		if e, ok := o.(*dns.EDNS0_EDE); ok {
			return e.InfoCode, e.ExtraText, true
		}
	}
	return 0, "", false
}

// texts returns the data of the answer's records, without owner and TTL.
func texts(m *dns.Msg) (data []string) {
	for _, rr := range m.Answer {
		data = append(data, rr.String()[len(rr.Header().String()):])
	}
	return data
}

func hostOrZero(s string) hostname.Name { n, _ := hostname.Parse(s); return n }
func name(s string) hostname.Name       { return hostname.MustParse(s) }
func addr(s string) netip.Addr          { return netip.MustParseAddr(s) }

// setJudge puts another judge in force and leaves the policy as it is.
func (k *kit) setJudge(t *testing.T, j Judge) {
	t.Helper()
	if err := k.reload(k.epoch.Load().policy, j); err != nil {
		t.Fatal(err)
	}
}
