//go:build vmtest

package main

import (
	"bytes"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/miekg/dns"

	"github.com/msb-project/msb/gateway/gatewaytest"
	"github.com/msb-project/msb/netstack/netstacktest"
)

// island is the world that an attacker in a real guest tries to reach: a host whose every packet is
// seen, and an internet in which every address answers.
type island struct {
	*netstacktest.Island
	t       *testing.T
	sniffer *netstacktest.Sniffer
	ca      *gatewaytest.Authority
	kept    map[flow]bool // let out by earlier attacks

	mu       sync.Mutex
	baits    []string // connections and datagrams that came to the host itself
	requests []arrived
	asked    []string
	open     int // connections at the internet's servers
	most     int
	zone     map[string][]string // what a name's first, second, … lookup is answered
}

// arrived is a request as a server of the internet got it.
type arrived struct{ at, sni, host, text string }

// resolver is where the policies say that names are resolved.
const resolver = "127.0.0.1:53"

// openPorts are where the host and the internet have listeners; every other port refuses.
var openPorts = []string{"22", "80"}

func newIsland(t *testing.T) *island {
	t.Helper()
	base, err := netstacktest.OpenIsland()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(base.Close)
	i := &island{Island: base, t: t, ca: gatewaytest.NewAuthority(t), zone: map[string][]string{}, kept: map[flow]bool{}}
	for _, port := range openPorts {
		i.bait(port)
	}
	i.serve("80", nil)
	i.serve("443", &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
		c := i.ca.Certificate(h.ServerName)
		return &c, nil
	}})
	i.resolve()
	if i.sniffer, err = base.Host.Sniff(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(i.sniffer.Close)
	return i
}

// listen makes a listener on all addresses of a namespace.
func (i *island) listen(ns *netstacktest.TapGuest, addr string) (l net.Listener) {
	i.t.Helper()
	err := ns.Do(func() (err error) { l, err = net.Listen("tcp", addr); return err })
	if err != nil {
		i.t.Fatal(err)
	}
	return l
}

func (i *island) packets(ns *netstacktest.TapGuest, addr string) (pc net.PacketConn) {
	i.t.Helper()
	err := ns.Do(func() (err error) { pc, err = net.ListenPacket("udp", addr); return err })
	if err != nil {
		i.t.Fatal(err)
	}
	return pc
}

// bait listens on all addresses of the host and notes whoever comes.
func (i *island) bait(port string) {
	l, pc := i.listen(i.Host, ":"+port), i.packets(i.Host, ":"+port)
	var wg sync.WaitGroup
	note := func(what string) {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.baits = append(i.baits, what)
	}
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			note("tcp " + c.LocalAddr().String())
			_ = c.Close()
		}
	})
	wg.Go(func() {
		buf := make([]byte, 1<<16)
		for {
			if _, _, err := pc.ReadFrom(buf); err != nil {
				return
			}
			note("udp port " + port)
		}
	})
	i.t.Cleanup(func() { _ = l.Close(); _ = pc.Close(); wg.Wait() })
}

// serve is an HTTP server on all addresses of the internet. It sends whoever asks for /redirect to the
// metadata service, has 96 KiB at /bulk, and says what it got to everybody else.
func (i *island) serve(port string, conf *tls.Config) {
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := httputil.DumpRequest(r, true)
		if err != nil {
			return // cut off in its body: nobody's request
		}
		a := arrived{host: r.Host, text: string(text)}
		if at, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
			a.at = at.String()
		}
		if r.TLS != nil {
			a.sni = r.TLS.ServerName
		}
		i.mu.Lock()
		i.requests = append(i.requests, a)
		i.mu.Unlock()
		if r.URL.Path == "/redirect" {
			http.Redirect(w, r, "http://169.254.169.254/latest/meta-data/", http.StatusFound)
			return
		}
		if r.URL.Path == "/bulk" {
			_, _ = w.Write(bytes.Repeat([]byte("0123456789abcdef"), 96<<10/16))
			return
		}
		_, _ = io.WriteString(w, "served "+a.text)
	}))
	srv.Config.ConnState = func(_ net.Conn, to http.ConnState) {
		i.mu.Lock()
		defer i.mu.Unlock()
		switch to {
		case http.StateNew:
			i.open++
			i.most = max(i.most, i.open)
		case http.StateClosed, http.StateHijacked:
			i.open--
		case http.StateActive, http.StateIdle:
		}
	}
	srv.Config.ErrorLog = log.New(io.Discard, "", 0) // attackers' handshakes fail
	_ = srv.Listener.Close()
	srv.Listener = i.listen(i.Internet, ":"+port)
	srv.EnableHTTP2 = conf != nil
	if srv.TLS = conf; conf != nil {
		srv.StartTLS()
	} else {
		srv.Start()
	}
	i.t.Cleanup(srv.Close)
}

// resolve is the host's resolver, on loopback, over UDP and TCP.
func (i *island) resolve() {
	for _, srv := range []*dns.Server{{PacketConn: i.packets(i.Host, resolver)}, {Listener: i.listen(i.Host, resolver)}} {
		started := make(chan struct{})
		srv.Handler, srv.NotifyStartedFunc = dns.HandlerFunc(i.answer), func() { close(started) }
		var wg sync.WaitGroup
		wg.Go(func() { _ = srv.ActivateAndServe() })
		<-started
		i.t.Cleanup(func() { _ = srv.Shutdown(); wg.Wait() })
	}
}

// answer gives a name's next address, with a TTL of 0; the last one stays.
func (i *island) answer(w dns.ResponseWriter, q *dns.Msg) {
	m := new(dns.Msg).SetReply(q)
	name := strings.ToLower(strings.TrimSuffix(q.Question[0].Name, "."))
	i.mu.Lock()
	i.asked = append(i.asked, name)
	addrs := i.zone[name]
	if q.Question[0].Qtype == dns.TypeA && len(addrs) > 1 {
		i.zone[name] = addrs[1:]
	}
	i.mu.Unlock()
	if len(addrs) == 0 {
		m.Rcode = dns.RcodeNameError
	} else if q.Question[0].Qtype == dns.TypeA {
		m.Answer = append(m.Answer, &dns.A{
			Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET}, A: net.ParseIP(addrs[0]),
		})
	}
	_ = w.WriteMsg(m)
}

// seen takes what happened since the last call.
func (i *island) seen() (s sight) {
	i.t.Helper()
	var err error
	if s.packets, err = i.sniffer.Packets(); err != nil {
		i.t.Errorf("the host's packets: %v", err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	s.baits, s.requests, s.asked, s.most = i.baits, i.requests, i.asked, i.most
	i.baits, i.requests, i.asked, i.most = nil, nil, nil, i.open
	return s
}

// sight is what was seen from outside.
type sight struct {
	packets  []netstacktest.Packet
	baits    []string
	requests []arrived
	asked    []string
	most     int // connections that were open at once at the internet's servers
}

// flow are the two ends of one, in the order in which they were first seen.
type flow struct{ from, to netip.AddrPort }

// trespass lists what must not have happened: anything at the host's own listeners, and every packet but
// questions to the resolver, flows with the ends that are allowed, "93.184.215.14:443", and what goes on
// in flows that were allowed before: connections to servers are kept.
func (i *island) trespass(s *sight, allowed ...string) []string {
	bad := slices.Clone(s.baits)
	for _, p := range s.packets {
		if p.Device == "lo" && (p.Dst.String() == resolver || p.Src.String() == resolver) {
			continue
		}
		if i.kept[flow{p.Src, p.Dst}] {
			continue
		}
		if p.Device == netstacktest.Uplink && slices.Contains(allowed, p.Dst.String()) {
			i.kept[flow{p.Src, p.Dst}] = true
			continue
		}
		bad = append(bad, p.String())
	}
	if len(bad) > 20 {
		bad = append(bad[:20], "…")
	}
	return bad
}

// attacker is a shell in a real guest.
type attacker struct {
	*running
	t  *testing.T
	in io.WriteCloser
	at int
}

// guest boots a machine on the island under a policy, in which "CA" stands for the file with the
// island's authority.
func (i *island) guest(policy string, args ...string) *attacker {
	i.t.Helper()
	if err := subreaper(); err != nil {
		i.t.Fatal(err)
	}
	ca := filepath.Join(i.t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, i.ca.PEM(), 0o600); err != nil {
		i.t.Fatal(err)
	}
	file := write(i.t, "policy.toml", "version = 1\n"+strings.ReplaceAll(policy, "CA", ca))
	args = append([]string{"-q", "-i", "--policy", file}, args...)
	a := &attacker{t: i.t, running: &running{Cmd: command(i.t, nil, runArgs(append(args, "--", "sh"))...), ended: make(chan struct{})}}
	a.Stdout, a.Stderr = &a.out, &a.err
	var err error
	if a.in, err = a.StdinPipe(); err != nil {
		i.t.Fatal(err)
	}
	if err := i.Host.Do(func() error { a.start(i.t); return nil }); err != nil {
		i.t.Fatal(err)
	}
	return a
}

// sh runs a shell script in the guest and returns what it printed.
func (a *attacker) sh(script string) string {
	a.t.Helper()
	const end = "-- that was it --\n"
	if _, err := io.WriteString(a.in, "{\n"+script+"\n} </dev/null 2>&1\nprintf '%s\\n' '-- that was it'' --'\n"); err != nil {
		a.t.Fatalf("the guest has gone: %v\n%s", err, a.err.String())
	}
	eventually(a.t, "the end of "+script, func() bool { return strings.Contains(a.out.String()[a.at:], end) || a.over() })
	text, _, ok := strings.Cut(a.out.String()[a.at:], end)
	if !ok {
		a.t.Fatalf("the guest ended in the middle of %s: %q", script, a.err.String())
	}
	a.at += len(text) + len(end)
	return text
}

func (a *attacker) over() bool {
	select {
	case <-a.ended:
		return true
	default:
		return false
	}
}

// leave ends the guest and expects that msb ends well.
func (a *attacker) leave() {
	a.t.Helper()
	_ = a.in.Close()
	a.wait(a.t).want(a.t, 0, a.out.String())
	nothingLeft(a.t, stateDirectory())
}
