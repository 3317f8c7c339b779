package supervisor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/netstack/netstacktest"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// unrouted is an address of the internet: what is allowed to go there gets to noInternet.
const unrouted = "11.255.255.254"

// noInternet is the host's network, where nobody but this machine ever answers.
type noInternet struct{}

func (noInternet) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	if to, err := netip.ParseAddrPort(addr); err == nil && to.Addr().IsLoopback() {
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}
	return nil, unix.ENETUNREACH
}

// oneHost is a policy for one name, whose secret ends the sandbox where it isn't meant to be.
func oneHost(t *testing.T) string {
	t.Helper()
	value := filepath.Join(t.TempDir(), "token")
	must(t, os.WriteFile(value, []byte("a-value-that-is-long-enough"), 0o600))
	return "version = 1\n[[egress.allow]]\nhosts = [\"a.example\"]\n[secrets.TOKEN]\nfrom = \"file:" + value + "\"\nhosts = [\"a.example\"]\nin = [\"basic\"]\non_violation = \"terminate\"\n"
}

// netted is a supervisor whose guest has a network stack. Its resolver outside knows each name at unrouted.
type netted struct {
	*supervised
	net  *netstacktest.Guest
	info *state.Info
}

// superviseNet starts one.
func superviseNet(t *testing.T, p *state.Plan, change ...func(*supervisor)) *netted {
	t.Helper()
	pc, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	must(t, err)
	srv := &dns.Server{PacketConn: pc, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg)
		m.SetReply(q)
		if q.Question[0].Qtype == dns.TypeA {
			rr, _ := dns.NewRR(q.Question[0].Name + " 60 IN A " + unrouted)
			m.Answer = append(m.Answer, rr)
		}
		_ = w.WriteMsg(m)
	})}
	served := make(chan error, 1)
	go func() { served <- srv.ActivateAndServe() }()
	t.Cleanup(func() { _ = pc.Close(); <-served })
	resolver := "[dns]\nservers = [\"udp://" + pc.LocalAddr().String() + "\"]\n"
	p.NoNet, p.Policy = false, p.Policy+resolver
	if p.Floor != "" {
		p.Floor += resolver
	}
	g := &guestVM{network: true}
	s, info := superviseFake(t, g, p, append(change, func(s *supervisor) { s.dialer = noInternet{} })...)
	if info == nil {
		t.Fatal(<-s.ended)
	}
	cfg := s.gateway.Link()
	cfg.GuestMAC, cfg.MTU = g.greeting.GetNetwork().GetMac(), int(g.greeting.GetNetwork().GetMtu())
	return &netted{s, netstacktest.NewGuest(t, g.link, cfg), info}
}

// ask asks the gateway's resolver for a name.
func (n *netted) ask(t *testing.T, name string) *dns.Msg {
	t.Helper()
	conn, err := n.net.DialUDP(netip.AddrPortFrom(n.gateway.Link().Gateway4, 53))
	must(t, err)
	defer func() { _ = conn.Close() }()
	must(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
	c := &dns.Conn{Conn: conn}
	q := new(dns.Msg)
	q.SetQuestion(dns.Fqdn(name), dns.TypeA)
	must(t, c.WriteMsg(q))
	m, err := c.ReadMsg()
	must(t, err)
	return m
}

// end stops the sandbox and returns its log.
func (n *netted) end(t *testing.T) []audit.Event {
	t.Helper()
	n.cancel(errCallerGone)
	must(t, <-n.ended)
	return n.log(t)
}

func (n *netted) log(t *testing.T) (all []audit.Event) {
	t.Helper()
	text, err := os.ReadFile(n.plan.Audit)
	must(t, err)
	for d := json.NewDecoder(strings.NewReader(string(text))); ; {
		var e audit.Event
		if err := d.Decode(&e); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
}

// known reports whether the guest may know a name's address.
func (n *netted) known(t *testing.T, name string) bool {
	t.Helper()
	m := n.ask(t, name)
	return m.Rcode == dns.RcodeSuccess && len(m.Answer) == 1
}

// request sends a request to a name by TLS.
func (n *netted) request(t *testing.T, name, target, head string) net.Conn {
	t.Helper()
	if !n.known(t, name) {
		t.Fatalf("%s isn't known", name)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	c, err := n.net.DialTCP(ctx, netip.MustParseAddrPort(unrouted+":443"))
	must(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(n.guest.greeting.GetTrust().GetCaPem())
	out := tls.Client(c, &tls.Config{ServerName: name, RootCAs: roots})
	must(t, out.SetDeadline(time.Now().Add(10*time.Second)))
	if _, err := io.WriteString(out, "GET "+target+" HTTP/1.1\r\nHost: "+name+"\r\n"+head+"\r\n"); err != nil {
		t.Fatal(err)
	}
	return out
}

// eventually waits until something is so.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

// TestI15_FloorsHoldInSandboxes: a name that the policy gives and the operator's floor doesn't is not known in the guest.
// The contrast is one that both give. What is refused is in the log, in the capture and in what the caller is told at the end.
func TestI15_FloorsHoldInSandboxes(t *testing.T) {
	t.Parallel()
	p := newPlan(t, t.TempDir(), "web")
	p.Policy = "version = 1\n[[egress.allow]]\nhosts = [\"a.example\", \"b.example\"]\n"
	p.Floor = "version = 1\n[[egress.allow]]\nhosts = [\"a.example\"]\n"
	dir := t.TempDir()
	p.Audit, p.Pcap, p.Learn = filepath.Join(dir, "audit.jsonl"), filepath.Join(dir, "frames.pcapng"), filepath.Join(dir, "learned.toml")
	p.AuditLabels = map[string]string{"team": "blue"}
	n := superviseNet(t, p)
	if n.guest.greeting.GetNetwork().GetMtu() <= 1500 {
		t.Errorf("the link's frames are small: %d", n.guest.greeting.GetNetwork().GetMtu())
	}
	if !n.known(t, "a.example") || n.known(t, "b.example") {
		t.Error("a name is known against the floor, or one isn't known that it gives")
	}
	refused := 0
	for _, e := range n.end(t) {
		if e.Labels["team"] != "blue" || e.Sandbox != "web" {
			t.Errorf("a line without its labels: %+v", e)
		}
		if e.Kind == audit.DNSQuery && e.Action == "deny" && e.DNS.Name == "b.example" {
			refused++
		}
	}
	if refused != 1 {
		t.Errorf("the refusal is in the log %d times", refused)
	}
	frames, err := os.ReadFile(p.Pcap)
	must(t, err)
	if !strings.Contains(string(frames), "\x01b\x07example") {
		t.Error("the question isn't in the capture")
	}
	learned, err := os.ReadFile(p.Learn)
	must(t, err)
	if !strings.Contains(string(learned), "b.example") {
		t.Errorf("nothing was learned: %s", learned)
	}
	for {
		select {
		case line := <-n.status:
			if line.Denied == nil {
				continue
			}
			if b, _ := json.Marshal(line.Denied); !strings.Contains(string(b), "b.example") {
				t.Errorf("the caller is told %s", b)
			}
			return
		case <-time.After(20 * time.Second):
			t.Fatal("the caller isn't told what was refused")
		}
	}
}

// TestI18_ViolationsEndSandboxes of secrets that ask for it. The contrast is the placeholder of the sandbox from which this one was
// cloned: its request is refused, and the sandbox goes on.
func TestI18_ViolationsEndSandboxes(t *testing.T) {
	t.Parallel()
	const parents = "msb_0123456789abcdefghijklmnopqrstuv"
	p := newPlan(t, t.TempDir(), "web")
	p.Policy, p.Audit = oneHost(t), filepath.Join(t.TempDir(), "audit.jsonl")
	st, err := state.ReadStored(p.Dir, "web")
	must(t, err)
	st.ParentPlaceholders = map[string]string{parents: "TOKEN"}
	must(t, state.WriteJSON(p.Dir, state.StoredFile, st))
	n := superviseNet(t, p)
	c := n.request(t, "a.example", "/", "X-Token: "+parents+"\r\n")
	answer := make([]byte, len("HTTP/1.1 403"))
	if _, err := io.ReadFull(c, answer); err != nil || string(answer) != "HTTP/1.1 403" {
		t.Errorf("the parent's placeholder: %q, %v", answer, err)
	}
	if n.ctx.Err() != nil {
		t.Errorf("the parent's placeholder ends the sandbox: %v", context.Cause(n.ctx))
	}
	n.request(t, "a.example", "/?x="+n.info.Placeholders["TOKEN"], "") // whose answer may come too late for the guest
	select {
	case err := <-n.ended:
		if !errors.Is(err, state.ErrTerminated) || !strings.Contains(err.Error(), "TOKEN") {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Error("the sandbox goes on")
		_ = n.end(t)
	}
}

// TestI15_GrantsForOnceHoldInSandboxes: what was granted for once before the start is open in the guest until the first connection has
// ended, which is written down as used before anything leaves. One that was used in the run before is over at the start.
func TestI15_GrantsForOnceHoldInSandboxes(t *testing.T) {
	t.Parallel()
	p := newPlan(t, t.TempDir(), "web")
	p.Policy, p.Audit = "version = 1\n", filepath.Join(t.TempDir(), "audit.jsonl")
	st, err := state.ReadStored(p.Dir, "web")
	must(t, err)
	st.Policy = p.Policy
	for _, host := range []string{"once.example", "before.example"} {
		r := state.NewRequest(host, 443, nil, "a test", time.Now())
		must(t, st.Ask(&r, time.Now()))
		_, err := st.Answer(&state.RequestAnswer{ID: r.ID, Approve: true, Lifetime: state.ForOnce, By: "alice"}, time.Now())
		must(t, err)
	}
	must(t, st.Requests[0].MarkUnused(p.Dir))
	must(t, state.WriteJSON(p.Dir, state.StoredFile, st))
	states := func() (all [2]state.RequestState) {
		now, err := state.ReadStored(p.Dir, "web")
		must(t, err)
		return [2]state.RequestState{now.Requests[0].State, now.Requests[1].State}
	}
	n := superviseNet(t, p)
	if got, want := states(), [2]state.RequestState{state.RequestApproved, state.RequestEnded}; got != want {
		t.Errorf("at the start the grants are %v, want %v", got, want)
	}
	if n.known(t, "before.example") {
		t.Error("what was used in the run before is open")
	}
	if !n.known(t, "once.example") {
		t.Fatal("what was granted isn't open")
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c, err := n.net.DialTCP(ctx, netip.MustParseAddrPort(unrouted+":443"))
	must(t, err)
	over := make(chan struct{})
	go func() { // its first message says the name; nobody answers it
		defer close(over)
		_ = tls.Client(c, &tls.Config{ServerName: "once.example"}).HandshakeContext(ctx)
	}()
	eventually(t, "the grant is used", func() bool { return !there(t, state.OnceFile(p.Dir, st.Requests[0].ID)) })
	cancel()
	<-over
	_ = c.Close()
	eventually(t, "the grant is over with its connection", func() bool { return states()[0] == state.RequestEnded })
	if n.known(t, "once.example") {
		t.Error("what was used is open")
	}
	n.end(t)
}

// TestI15_PolicyFilesAreFollowed: a sandbox takes what its policy file says by now, unless that takes more from this machine than its
// user approved.
func TestI15_PolicyFilesAreFollowed(t *testing.T) {
	t.Parallel()
	for name, secret := range map[string]bool{"a host more": false, "a secret more": true} {
		p := newPlan(t, t.TempDir(), "web")
		dir := t.TempDir()
		p.Policy, p.Audit, p.PolicyFile = "version = 1\n", filepath.Join(dir, "audit.jsonl"), filepath.Join(dir, "p.toml")
		text := "version = 1\n[[egress.allow]]\nhosts = [\"a.example\"]\n"
		if secret {
			text = oneHost(t)
		}
		must(t, os.WriteFile(p.PolicyFile, []byte(text), 0o600))
		n := superviseNet(t, p)
		var e audit.Event
		eventually(t, "the file is read", func() bool {
			for _, e = range n.log(t) {
				if e.Kind == audit.PolicyReload {
					return true
				}
			}
			return false
		})
		if (e.Action == "deny") != secret {
			t.Errorf("%s: %+v", name, e)
		}
		if got := len(n.gateway.Policy().Egress.Allow) > 0; got == secret {
			t.Errorf("%s: in force: %t", name, got)
		}
		n.end(t)
	}
}

// TestSecretsThatCannotBeReadAreNamed, by their kind too. The contrast is a link that can't be served.
func TestSecretsThatCannotBeReadAreNamed(t *testing.T) {
	t.Parallel()
	p := newPlan(t, t.TempDir(), "web")
	p.NoNet, p.Policy = false, strings.Replace(oneHost(t), "/token", "/no-token", 1)
	s, _ := superviseFake(t, &guestVM{}, p)
	if err := <-s.ended; !errors.Is(err, state.ErrSecretValue) {
		t.Errorf("it ended with %v", err)
	}
}
