package supervisor

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/audit"
)

// testPodPorts are those of a guest at own, and what they serve and tell.
func testPodPorts(own ...netip.Addr) (p *podPorts, served *[]*published, events *[]audit.Event) {
	served, events = new([]*published), new([]audit.Event)
	return &podPorts{
		own:   func() []netip.Addr { return own },
		serve: func(p *published) { *served = append(*served, p) },
		event: func(e audit.Event) { *events = append(*events, e) },
		shut:  make(map[podPort]bool), open: make(map[podPort]*published),
	}, served, events
}

func socketsAt(all ...string) (out []agentclient.ListeningSocket) {
	for _, s := range all {
		network, at, _ := strings.Cut(s, " ")
		out = append(out, agentclient.ListeningSocket{Network: network, Address: netip.MustParseAddrPort(at)})
	}
	return out
}

// TestPodPortsMirrorTheGuests: sockets at all addresses, at the guest's own and at loopback ones are opened as they are; one
// at another address, which the guest only claims, and the agent's own ways to loopback servers are not.
func TestPodPortsMirrorTheGuests(t *testing.T) {
	t.Parallel()
	p, _, _ := testPodPorts(netip.MustParseAddr("10.213.7.5"))
	p.keepShut(40000, false)
	p.keepShut(40001, true)
	wanted := p.wanted(socketsAt(
		"tcp 0.0.0.0:80", "tcp [::]:81", "tcp 10.213.7.5:82", "tcp 127.0.0.1:83", "tcp [::1]:83", "udp 0.0.0.0:53", "udp [::]:54", "udp 10.213.7.5:40000",
		"tcp 10.213.7.1:84", "tcp 192.0.2.1:85", "tcp 10.213.7.5:40000", "tcp 10.213.7.5:40001", "udp 10.213.7.5:40001", "tcp [fe80::1]:86",
	))
	var got []string
	for _, w := range wanted {
		got = append(got, fmt.Sprint(w.at, " ", w.udp))
	}
	if want := []string{
		"0.0.0.0:53 true", "0.0.0.0:54 true", "0.0.0.0:80 false", "0.0.0.0:81 false", "10.213.7.5:82 false", "10.213.7.5:40000 true", "10.213.7.5:40001 false", "127.0.0.1:83 false",
		"[::]:54 true", "[::]:81 false", "[::1]:83 false",
	}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// TestPodPortsFollowTheGuest: a port is there as long as the guest listens, and one that can't be opened is reported once and
// opened later.
func TestPodPortsFollowTheGuest(t *testing.T) {
	t.Parallel()
	var lc net.ListenConfig
	taken, err := lc.Listen(t.Context(), "tcp4", "127.0.0.5:0")
	must(t, err)
	port := netip.MustParseAddrPort(taken.Addr().String()).Port()
	at := fmt.Sprintf("127.0.0.5:%d", port)
	p, served, events := testPodPorts()
	wanted := p.wanted(socketsAt("tcp " + at))
	for range 3 {
		p.set(t.Context(), wanted)
	}
	if len(*served) != 0 || len(*events) != 1 || (*events)[0].Kind != audit.Limit || !strings.Contains((*events)[0].Message, at) {
		t.Errorf("a port that is taken: %d served, %v", len(*served), *events)
	}
	must(t, taken.Close())
	for range 3 {
		p.set(t.Context(), wanted)
	}
	if len(*served) != 1 || (*served)[0].Guest != port || len((*served)[0].listeners) != 1 {
		t.Fatalf("%+v", *served)
	}
	var d net.Dialer
	c, err := d.DialContext(t.Context(), "tcp4", at)
	must(t, err)
	_ = c.Close()
	p.set(t.Context(), nil)
	if c, err := d.DialContext(t.Context(), "tcp4", at); err == nil {
		_ = c.Close()
		t.Error("the port is open when the guest's socket is closed")
	}
}

// TestI11_PodPortsAreBounded: a guest that listens at all ports opens as many as there may be, and one line says so.
func TestI11_PodPortsAreBounded(t *testing.T) {
	t.Parallel()
	p, served, events := testPodPorts()
	var all []podPort
	for i := range uint16(2 * maxPodPorts) {
		all = append(all, podPort{netip.AddrPortFrom(netip.MustParseAddr("127.0.0.6"), 20000+i), i%2 == 1})
	}
	for range 2 {
		p.set(t.Context(), all)
	}
	if len(*served) != maxPodPorts || len(p.open) != maxPodPorts || len(*events) != 1 || !strings.Contains((*events)[0].Message, "256 sockets") {
		t.Errorf("%d served, %d open, %v", len(*served), len(p.open), *events)
	}
	p.set(t.Context(), nil)
	if len(p.open) != 0 {
		t.Errorf("%d are open still", len(p.open))
	}
}

// TestPodPortsEndWithTheSession: what is open is closed when the guest no longer answers.
func TestPodPortsEndWithTheSession(t *testing.T) {
	t.Parallel()
	p, served, _ := testPodPorts()
	p.ctx = t.Context
	calls := 0
	p.sockets = func(context.Context) ([]agentclient.ListeningSocket, error) {
		if calls++; calls == 1 {
			return socketsAt("tcp 127.0.0.7:20000"), nil
		}
		return nil, agentclient.ErrAgentDead
	}
	p.follow()
	if len(*served) != 1 || len(p.open) != 0 {
		t.Errorf("%d served, %d open", len(*served), len(p.open))
	}
}
