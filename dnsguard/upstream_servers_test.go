package dnsguard

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/msb-project/msb/policies"
)

// The last of as many servers as a policy may name is asked when all before it are dead, at once.
func TestEveryDNSServerIsAsked(t *testing.T) {
	t.Parallel()
	var servers []policies.Server
	for i := range 8 {
		servers = append(servers, policies.Server{Kind: policies.ServerUDP, Addr: netip.MustParseAddrPort(fmt.Sprintf("192.0.2.%d:53", i+1))})
	}
	var k *kit
	k = newKit(t, judgeOf("*.example"), records("a.example. 1 IN A 93.184.216.34"), func(c *Config) {
		c.Policy.DNS.Servers = servers
		c.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if !strings.HasPrefix(addr, "192.0.2.8:") {
				return nil, os.ErrDeadlineExceeded
			}
			return k.dial(ctx, network, addr)
		}
	})
	m, why := k.ask(t, "a.example", dns.TypeA)
	if len(m.Answer) != 1 || why.Upstream != "udp://192.0.2.8:53" {
		t.Errorf("got %v, %+v; want the answer of the last server", m, why)
	}
}

func TestNoIPv6MeansEmptyAAAA(t *testing.T) {
	t.Parallel()
	k := newKit(t, judgeOf("*.example"), records("a.example. 60 IN AAAA 2606:2800:21f::1", "a.example. 60 IN A 93.184.216.34"),
		func(c *Config) { c.HasIPv6 = func() bool { return false } })
	if m, why := k.ask(t, "a.example", dns.TypeAAAA); m.Rcode != dns.RcodeSuccess || len(m.Answer) != 0 {
		t.Errorf("AAAA: %v, %+v; want NOERROR without an address", m, why)
	}
	if k.Pins().Names(addr("2606:2800:21f::1")) != nil {
		t.Error("an address that the host can't reach is pinned")
	}
	if m, _ := k.ask(t, "a.example", dns.TypeA); len(m.Answer) != 1 {
		t.Errorf("A: %v", m)
	}
}
