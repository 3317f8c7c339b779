package dnsguard

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/netstack"
	"github.com/msb-project/msb/netstack/netstacktest"
)

// stackGuest joins a guest with a TCP/IP stack of its own to k: everything it
// sends to any port 53 ends in dnsguard.
func stackGuest(t *testing.T, k *kit) *netstacktest.Guest {
	t.Helper()
	_, g := netstacktest.Start(t, netstack.Config{Handler: &netstacktest.Handler{
		UDP: func(ctx context.Context, f *netstack.UDPFlow) {
			conn, err := f.Accept()
			if err != nil {
				return
			}
			k.ServeUDP(ctx, conn)
		},
		TCP: func(ctx context.Context, f *netstack.TCPFlow) {
			conn, err := f.Accept()
			if err != nil {
				return
			}
			k.ServeTCP(ctx, conn)
		},
	}})
	return g
}

// TestI6_AnyPort53IsOurs asks resolvers of the guest's own choosing, and by glibc's
// habit: A and AAAA at once from one socket, answers in any order.
func TestI6_AnyPort53IsOurs(t *testing.T) {
	t.Parallel()
	k := newKit(t, judgeOf("*.example"), records(
		"api.example. 300 IN A 93.184.216.34",
		"api.example. 300 IN AAAA 2606:2800::1",
	))
	g := stackGuest(t, k)
	for _, resolver := range []string{"192.168.127.1:53", "8.8.8.8:53", "10.0.0.1:53", "[2001:4860:4860::8888]:53"} {
		conn, err := g.DialUDP(netip.MustParseAddrPort(resolver))
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(60 * time.Second))
		for i, qtype := range []uint16{dns.TypeA, dns.TypeAAAA} {
			m := new(dns.Msg).SetQuestion("api.example.", qtype)
			m.Id = uint16(100 + i)
			if _, err := conn.Write(mustPack(t, m)); err != nil {
				t.Fatal(err)
			}
		}
		got := map[uint16][]string{}
		for range 2 {
			buf := make([]byte, 2048)
			n, err := conn.Read(buf)
			if err != nil {
				t.Fatalf("%s: %v", resolver, err)
			}
			m := mustUnpack(t, buf[:n])
			got[m.Id] = texts(m)
		}
		if !slices.Equal(got[100], []string{"93.184.216.34"}) || !slices.Equal(got[101], []string{"2606:2800::1"}) {
			t.Errorf("%s: %v", resolver, got)
		}
		_ = conn.Close()
	}
	// The audit says which resolver the guest tried.
	seen := map[string]bool{}
	for _, e := range k.audit.kind(audit.DNSQuery) {
		seen[netip.AddrPortFrom(e.Dst, e.Port).String()] = true
	}
	if !seen["8.8.8.8:53"] || !seen["[2001:4860:4860::8888]:53"] {
		t.Errorf("audited destinations: %v", seen)
	}
}

func TestGuestStackServesInParallel(t *testing.T) {
	t.Parallel()
	var lines []string
	for i := range 60 {
		lines = append(lines, fmt.Sprintf("many.example. 300 IN A 93.184.216.%d", i+1))
	}
	k := newKit(t, judgeOf("*.example"), records(lines...))
	g := stackGuest(t, k)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
			defer cancel()
			conn, err := g.DialTCP(ctx, netip.MustParseAddrPort("8.8.4.4:53"))
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = conn.Close() }()
			_ = conn.SetDeadline(time.Now().Add(60 * time.Second))
			client := &dns.Conn{Conn: conn}
			if err := client.WriteMsg(new(dns.Msg).SetQuestion("many.example.", dns.TypeA)); err != nil {
				t.Error(err)
				return
			}
			if m, err := client.ReadMsg(); err != nil || len(m.Answer) != 60 {
				t.Errorf("%v, %v", m, err)
			}
		})
	}
	wg.Wait()
	if n := k.auth.asked.Load(); n > 2 { // UDP, cut short, and TCP
		t.Errorf("%d questions upstream", n)
	}
}
