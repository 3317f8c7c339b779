package netstack_test

import (
	"errors"
	"net"
	"net/netip"
	"testing"

	"github.com/msb-project/msb/netstack"
	"github.com/msb-project/msb/netstack/netstacktest"
)

// podLink has the addresses of a pod, and a gateway outside of them.
func podLink() netstack.Config {
	return netstack.Config{
		Guest4: netip.MustParseAddr("10.213.7.5"), Gateway4: netip.MustParseAddr("169.254.127.1"), Prefix4: 32,
		Guest6: netip.MustParseAddr("2a0a:1::5"), Gateway6: netip.MustParseAddr("fd6d:7362::1"), Prefix6: 128,
		Handler: &netstacktest.Handler{TCP: echo},
	}
}

// TestGuestsWithoutNeighbours have an address alone, and reach everything by a gateway that isn't in their prefix.
func TestGuestsWithoutNeighbours(t *testing.T) {
	t.Parallel()
	_, g := netstacktest.Start(t, podLink())
	for _, dst := range []string{"203.0.113.7:80", "[2001:db8::7]:80", "10.213.7.6:80", "[2a0a:1::6]:80"} {
		stillServes(t, g, netip.MustParseAddrPort(dst))
	}
}

// TestLinksOfOneAddress: a prefix of one address takes any gateway but the guest's own address; of a wider one the twin is
// refused.
func TestLinksOfOneAddress(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*netstack.Config)
		ok     bool
	}{
		"a pod's":        {func(*netstack.Config) {}, true},
		"wider":          {func(c *netstack.Config) { c.Prefix4 = 24 }, false},
		"wider IPv6":     {func(c *netstack.Config) { c.Prefix6 = 64 }, false},
		"the gateway's":  {func(c *netstack.Config) { c.Guest4 = c.Gateway4 }, false},
		"other families": {func(c *netstack.Config) { c.Gateway4 = c.Gateway6 }, false},
	} {
		cfg := podLink()
		c.change(&cfg)
		s, err := netstack.New(cfg)
		if c.ok != (err == nil) || err != nil && !errors.Is(err, netstack.ErrConfig) {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestGuestsSeeTheirClients: a connection has the address that it is dialled from, and the gateway's where that one is none of
// another machine.
func TestGuestsSeeTheirClients(t *testing.T) {
	t.Parallel()
	s, g := netstacktest.Start(t, podLink())
	stillServes(t, g, server4) // the link is up then
	l, err := g.ListenTCP(8080)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	l6, err := g.ListenTCP6(8080)
	if err != nil {
		t.Fatal(err)
	}
	defer l6.Close()
	for from, want := range map[string]string{
		"10.213.9.9": "10.213.9.9", "203.0.113.9": "203.0.113.9", "::ffff:203.0.113.9": "203.0.113.9", "2001:db8::9": "2001:db8::9",
		"": "169.254.127.1", "127.0.0.1": "169.254.127.1", "10.213.7.5": "169.254.127.1", "169.254.1.1": "169.254.127.1",
		"::1": "fd6d:7362::1", "fe80::1%eth0": "fd6d:7362::1", "2a0a:1::5": "fd6d:7362::1",
	} {
		var addr netip.Addr
		if from != "" {
			addr = netip.MustParseAddr(from)
		}
		at := l
		if addr.Unmap().Is6() {
			at = l6
		}
		type accepted struct {
			client string
			err    error
		}
		seen := make(chan accepted, 1)
		go func() {
			c, err := at.Accept()
			if err != nil {
				seen <- accepted{"", err}
				return
			}
			host, _, _ := net.SplitHostPort(c.RemoteAddr().String())
			seen <- accepted{host, c.Close()}
		}()
		c, err := s.DialGuest(testContext(t), addr, 8080)
		if err != nil {
			t.Fatalf("from %q: %v", from, err)
		}
		if got := <-seen; got.err != nil || got.client != want {
			t.Errorf("from %q: the guest sees %v, want %s", from, got, want)
		}
		_ = c.Close()
	}
}
