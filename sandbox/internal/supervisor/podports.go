package supervisor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/audit"
)

const (
	// podPortPoll is how often the guest is asked what it listens on. A probe or a client that comes earlier is refused, as
	// before any server listens.
	podPortPoll = time.Second
	// maxPodPorts bounds the sockets that a guest has this process open.
	maxPodPorts = 256
)

// podPorts are the guest's listening sockets, opened at the same ports of the pod's network namespace: the one that this
// process is in, as readPod has made sure. What the guest says of its sockets is its word only, and opens nothing anywhere
// else.
type podPorts struct {
	sockets func(context.Context) ([]agentclient.ListeningSocket, error)
	ctx     func() context.Context
	own     func() []netip.Addr // the guest's addresses
	serve   func(*published)
	event   func(audit.Event)

	mu   sync.Mutex
	shut map[podPort]bool // ports of the agent's own, which lead to loopback servers
	open map[podPort]*published
	// failed says what could not be opened when it was last tried, and was reported.
	failed string
}

// podPort is one socket.
type podPort struct {
	at  netip.AddrPort
	udp bool
}

func newPodPorts(s *supervisor) podPorts {
	return podPorts{
		sockets: func(ctx context.Context) ([]agentclient.ListeningSocket, error) {
			return s.agent.Containers().ListeningSockets(ctx)
		},
		ctx: func() context.Context { return s.ctx },
		own: func() []netip.Addr {
			l := s.gateway.Link()
			return []netip.Addr{l.Guest4, l.Guest6}
		},
		serve: func(p *published) { s.ports.serve(p) },
		event: s.emit,
		shut:  make(map[podPort]bool), open: make(map[podPort]*published),
	}
}

// keepShut leaves a port of the agent's own out.
func (p *podPorts) keepShut(port uint16, udp bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shut[podPort{netip.AddrPortFrom(netip.Addr{}, port), udp}] = true
}

// follow opens and closes ports as the guest does, until it has gone.
func (p *podPorts) follow() {
	ctx := p.ctx()
	tick := time.NewTicker(podPortPoll)
	defer tick.Stop()
	defer p.set(ctx, nil)
	for {
		all, err := p.sockets(ctx)
		if err != nil {
			return // the session has ended, and the sandbox with it
		}
		p.set(ctx, p.wanted(all))
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// wanted are the sockets that clients may reach: those of a loopback address from within the pod alone (port-forward), those
// of the guest's addresses, and those of all.
func (p *podPorts) wanted(all []agentclient.ListeningSocket) []podPort {
	own := p.own()
	set := make(map[podPort]bool)
	for _, s := range all {
		a, udp := s.Address.Addr(), s.Network == "udp"
		p.mu.Lock()
		shut := p.shut[podPort{netip.AddrPortFrom(netip.Addr{}, s.Address.Port()), udp}]
		p.mu.Unlock()
		if shut || !a.IsLoopback() && !a.IsUnspecified() && !slices.Contains(own, a) {
			continue
		}
		set[podPort{s.Address, udp}] = true
		if a == netip.IPv6Unspecified() { // which takes IPv4, too, unless its program says otherwise
			set[podPort{netip.AddrPortFrom(netip.IPv4Unspecified(), s.Address.Port()), udp}] = true
		}
	}
	wanted := slices.Collect(maps.Keys(set))
	slices.SortFunc(wanted, func(a, b podPort) int {
		if c := a.at.Compare(b.at); c != 0 || a.udp == b.udp {
			return c
		}
		if b.udp {
			return -1
		}
		return 1
	})
	return wanted
}

// set closes what the guest has closed, then opens what is new. Connections to a TCP port that is closed go on.
func (p *podPorts) set(ctx context.Context, wanted []podPort) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for at, open := range p.open {
		if !slices.Contains(wanted, at) {
			open.close()
			delete(p.open, at)
		}
	}
	var failed []error
	for _, at := range wanted {
		if p.open[at] != nil {
			continue
		}
		if len(p.open) == maxPodPorts {
			failed = append(failed, fmt.Errorf("%d sockets are open already, and no more are opened", maxPodPorts))
			break
		}
		open := new(published)
		open.Guest, open.UDP = at.at.Port(), at.udp
		var config net.ListenConfig
		switch _, err := open.listen(ctx, &config, at.at); {
		case err == nil:
			p.open[at] = open
			p.serve(open)
		case at.at.Addr().Is6() && (errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT)): // a pod without IPv6
		default:
			failed = append(failed, err)
		}
	}
	p.report(errors.Join(failed...))
}

// report says once what can't be opened; it is tried again all the same.
func (p *podPorts) report(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != p.failed {
		p.event(audit.Event{Kind: audit.Limit, Message: "ports of the pod can't be opened: " + text})
	}
	p.failed = text
}
