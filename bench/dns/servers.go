//go:build linux

package main

import (
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/miekg/dns"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/dnsguard"
	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/policies"
)

// serve runs one of the gateways or servers of the benchmark in this process until it is told to stop. where is the
// link's path, or the authority's address.
func serve(kind, where, dir string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	switch kind {
	case "authority":
		pc, err := net.ListenPacket("udp", where)
		if err != nil {
			return err
		}
		s := &dns.Server{PacketConn: pc, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, m *dns.Msg) { _ = w.WriteMsg(answerAny(m)) })}
		context.AfterFunc(ctx, func() { _ = s.Shutdown() })
		return s.ActivateAndServe()
	case "bare":
		return serveLink(ctx, where, func(_ context.Context, c net.Conn) { serveMiekg(c, answerAny) })
	case "forwarder":
		client := &dns.Client{Timeout: 2 * time.Second}
		return serveLink(ctx, where, func(_ context.Context, c net.Conn) {
			serveMiekg(c, func(m *dns.Msg) *dns.Msg {
				reply, _, err := client.Exchange(m, upstream)
				if err != nil {
					return new(dns.Msg).SetRcode(m, dns.RcodeServerFailure)
				}
				return reply
			})
		})
	case "relay":
		return serveLink(ctx, where, func(_ context.Context, c net.Conn) { relay(c) })
	case "guard":
		return withGuard(dir, func(g *dnsguard.Guard) error {
			return serveLink(ctx, where, g.ServeUDP)
		})
	}
	return fmt.Errorf("unknown server %q", kind)
}

// serveMiekg answers the questions of one flow as miekg/dns's own server does: each in a goroutine.
func serveMiekg(c net.Conn, answer func(*dns.Msg) *dns.Msg) {
	defer func() { _ = c.Close() }()
	buf := make([]byte, dns.MinMsgSize)
	for {
		n, err := c.Read(buf)
		if err != nil {
			return
		}
		m := new(dns.Msg)
		if m.Unpack(buf[:n]) != nil {
			continue
		}
		go func() {
			if b, err := answer(m).Pack(); err == nil {
				_, _ = c.Write(b)
			}
		}()
	}
}

// relay carries the datagrams of one flow to dnsmasq and back.
func relay(c net.Conn) {
	defer func() { _ = c.Close() }()
	to, err := net.Dial("udp", dnsmasqAddr)
	if err != nil {
		return
	}
	defer func() { _ = to.Close() }()
	go func() { _, _ = io.Copy(c, to) }()
	_, _ = io.Copy(to, c)
}

// answerAny answers every name with a public address made from it.
func answerAny(m *dns.Msg) *dns.Msg {
	reply := new(dns.Msg).SetReply(m)
	h := fnv.New32a()
	_, _ = h.Write([]byte(dns.CanonicalName(m.Question[0].Name)))
	sum := h.Sum32()
	reply.Answer = []dns.RR{&dns.A{
		Hdr: dns.RR_Header{Name: m.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 3600},
		A:   net.IPv4(93, byte(sum>>16), byte(sum>>8), byte(sum)),
	}}
	return reply
}

// withGuard runs serve with a dnsguard that has the real engine, pins, and an
// audit log on disk.
func withGuard(dir string, serve func(*dnsguard.Guard) error) error {
	p := benchPolicy()
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

func benchPolicy() *policies.Policy {
	p := policies.Default()
	p.Egress.Default = policies.DefaultPublic // without a meter of questions below wildcards
	p.Egress.Deny = []policies.Rule{{Name: "no", Hosts: []hostname.Pattern{hostname.MustParsePattern("*.denied.com")}}}
	p.DNS.Servers = []policies.Server{{Kind: policies.ServerUDP, Addr: netip.MustParseAddrPort(upstream)}}
	p.Limits.DNSPerSecond = 0
	return p
}
