package main

import (
	"context"
	"fmt"
	"hash/fnv"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/miekg/dns"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/dnsguard"
	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/policies"
)

// serve runs one of the servers of the benchmark in this process until it is
// told to stop.
func serve(kind, addr, upstream, dir string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if kind == "link" {
		return withGuard(upstream, dir, func(g *dnsguard.Guard) error { return serveLink(ctx, g, addr) })
	}
	pc, err := net.ListenPacket("udp", addr)
	if err != nil {
		return err
	}
	switch kind {
	case "authority", "bare":
		return serveMiekg(ctx, pc, dns.HandlerFunc(answerAny))
	case "forwarder":
		return serveMiekg(ctx, pc, forwardTo(upstream))
	case "guard":
		return withGuard(upstream, dir, func(g *dnsguard.Guard) error {
			g.ServePacket(ctx, pc.(*net.UDPConn), runtime.GOMAXPROCS(0))
			return nil
		})
	}
	return fmt.Errorf("unknown server %q", kind)
}

// serveMiekg is a bare miekg/dns server, as its README has it.
func serveMiekg(ctx context.Context, pc net.PacketConn, h dns.Handler) error {
	s := &dns.Server{PacketConn: pc, Handler: h}
	go func() {
		<-ctx.Done()
		_ = s.Shutdown()
	}()
	return s.ActivateAndServe()
}

// answerAny answers every name with a public address made from it.
func answerAny(w dns.ResponseWriter, m *dns.Msg) {
	reply := new(dns.Msg).SetReply(m)
	h := fnv.New32a()
	_, _ = h.Write([]byte(dns.CanonicalName(m.Question[0].Name)))
	sum := h.Sum32()
	reply.Answer = []dns.RR{&dns.A{
		Hdr: dns.RR_Header{Name: m.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 3600},
		A:   net.IPv4(93, byte(sum>>16), byte(sum>>8), byte(sum)),
	}}
	_ = w.WriteMsg(reply)
}

// forwardTo is the shortest forwarder that miekg/dns allows.
func forwardTo(upstream string) dns.HandlerFunc {
	client := &dns.Client{Timeout: 2 * time.Second}
	return func(w dns.ResponseWriter, m *dns.Msg) {
		reply, _, err := client.Exchange(m, upstream)
		if err != nil {
			reply = new(dns.Msg).SetRcode(m, dns.RcodeServerFailure)
		}
		_ = w.WriteMsg(reply)
	}
}

// withGuard runs serve with a dnsguard that has the real engine, pins, and an
// audit log on disk.
func withGuard(upstream, dir string, serve func(*dnsguard.Guard) error) error {
	p, err := benchPolicy(upstream)
	if err != nil {
		return err
	}
	engine, err := egress.New(p)
	if err != nil {
		return err
	}
	log, err := audit.OpenLog(filepath.Join(dir, "audit.jsonl"), audit.Options{})
	if err != nil {
		return err
	}
	g, err := dnsguard.New(dnsguard.Config{Sandbox: "bench", Policy: p, Judge: engine, Audit: log})
	if err != nil {
		return err
	}
	err = serve(g)
	stats := g.Stats()
	_ = g.Close()
	_ = log.Close()
	fmt.Fprintf(os.Stderr, "guard: %d queries, %d cached, %d failed, %d limited, %d audit events lost\n",
		stats.Queries, stats.Cached, stats.Failed, stats.Limited, log.Dropped())
	return err
}

func benchPolicy(upstream string) (*policies.Policy, error) {
	server, err := netip.ParseAddrPort(upstream)
	if err != nil {
		return nil, err
	}
	p := policies.Default()
	p.Egress.Allow = []policies.Rule{{
		Name:     "bench",
		Hosts:    []hostname.Pattern{hostname.MustParsePattern("*")},
		Ports:    []policies.PortRange{{First: 443, Last: 443}},
		Protocol: policies.HTTPS,
	}}
	p.Egress.Deny = []policies.Rule{{Name: "no", Hosts: []hostname.Pattern{hostname.MustParsePattern("*.denied.test")}}}
	p.DNS.Servers = []policies.Server{{Kind: policies.ServerUDP, Addr: server}}
	p.Limits.DNSPerSecond = 0
	return p, nil
}
