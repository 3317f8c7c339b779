package supervisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/gateway"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// ports are those that are published. The policy in force is the gateway's.
type ports struct {
	s    *supervisor
	mu   sync.Mutex // of open, once the sandbox is ready
	open []*published
}

// published is a port that this process listens at.
type published struct {
	state.Port
	listeners []net.Listener
	sockets   []*net.UDPConn
}

// openAll listens at the ports that are published, before the guest boots: one that is in use is reported at once.
func (p *ports) openAll() error {
	for _, one := range p.s.plan.Ports {
		open, err := listenAt(p.s.ctx, p.s.plan.Home, one)
		if err != nil {
			for _, o := range p.open {
				o.close()
			}
			p.open = nil
			return err
		}
		p.open = append(p.open, open)
	}
	return nil
}

// anyTries is how often a port is chosen that is free at one loopback address and taken at the other.
const anyTries = 16

// listenAt listens at the addresses of a port; home is where sandboxes are that may hold it.
func listenAt(ctx context.Context, home string, p state.Port) (*published, error) {
	for try := 1; ; try++ {
		open, err := listenOnce(ctx, home, p)
		if err == nil || p.Host != 0 || try == anyTries || !errors.Is(err, syscall.EADDRINUSE) {
			return open, err
		}
	}
}

// listenOnce listens at all addresses of the port. An address that this machine doesn't have is left out if it wasn't
// asked for.
func listenOnce(ctx context.Context, home string, p state.Port) (*published, error) {
	open := &published{Port: p}
	var config net.ListenConfig
	for _, a := range p.Addresses() {
		at := netip.AddrPortFrom(a, open.Host)
		bound, err := open.listen(ctx, &config, at)
		if !p.Address.IsValid() && a.Is6() && (errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT)) {
			continue
		}
		if err != nil {
			open.close()
			if errors.Is(err, syscall.EADDRINUSE) {
				err = fmt.Errorf("%w; %s holds it: end that, or take another port, 0 for any", err, cmp.Or(sandboxAt(home, at, p.UDP), portOwner(at, p.Proto())))
			}
			return nil, fmt.Errorf("%w: %s: %w", state.ErrPort, p, err)
		}
		open.Host = bound
	}
	return open, nil
}

// listen listens at one address and returns the port.
func (p *published) listen(ctx context.Context, config *net.ListenConfig, at netip.AddrPort) (uint16, error) {
	var bound net.Addr
	if p.UDP {
		c, err := config.ListenPacket(ctx, network("udp", at.Addr()), at.String())
		if err != nil {
			return 0, err
		}
		socket, ok := c.(*net.UDPConn)
		if !ok {
			return 0, errors.Join(errors.ErrUnsupported, c.Close())
		}
		p.sockets, bound = append(p.sockets, socket), c.LocalAddr()
	} else {
		l, err := config.Listen(ctx, network("tcp", at.Addr()), at.String())
		if err != nil {
			return 0, err
		}
		p.listeners, bound = append(p.listeners, l), l.Addr()
	}
	a, err := netip.ParseAddrPort(bound.String())
	return a.Port(), err
}

// sandboxAt names the sandbox of a home that listens at an address: its supervisor hides its descriptors from portOwner.
// It is "" if there is none.
func sandboxAt(home string, a netip.AddrPort, udp bool) string {
	names, err := os.ReadDir(filepath.Join(home, state.NamedDir))
	if err != nil {
		return ""
	}
	for _, n := range names {
		var r state.RunRecord
		if state.ReadJSON(filepath.Join(home, state.NamedDir, n.Name()), state.InfoFile, &r) != nil || r.Info == nil || r.Supervisor != state.Identify(r.Supervisor.PID) {
			continue
		}
		for _, p := range r.Info.Ports {
			if p.Host == a.Port() && p.UDP == udp && slices.ContainsFunc(p.Addresses(), func(at netip.Addr) bool { return overlap(at, a.Addr()) }) {
				return "sandbox " + r.Info.ID
			}
		}
	}
	return ""
}

// overlap reports whether two programs can't listen at one port of both.
func overlap(a, b netip.Addr) bool { return a == b || a.IsUnspecified() || b.IsUnspecified() }

// network is that of an address: without a version, [::] would be IPv4 too.
func network(proto string, a netip.Addr) string {
	if a.Is4() {
		return proto + "4"
	}
	return proto + "6"
}

func (p *published) close() {
	for _, l := range p.listeners {
		_ = l.Close()
	}
	for _, c := range p.sockets {
		_ = c.Close()
	}
}

// opened are those that are published, with the ones that were chosen.
func (p *ports) opened() []state.Port {
	all := make([]state.Port, 0, len(p.open))
	for _, one := range p.open {
		all = append(all, one.Port)
	}
	return all
}

var errNotReady = errors.New("the guest isn't ready yet")

// forward implements gateway.Config.Forward.
func (p *ports) forward(ctx context.Context, proto egress.Proto, port uint16) (uint16, error) {
	agent := p.s.greeted.Load()
	if agent == nil {
		return 0, errNotReady
	}
	l := p.s.gateway.Link()
	guest, gateway := l.Guest4, l.Gateway4
	if p.s.pod.first().Is6() {
		guest, gateway = l.Guest6, l.Gateway6
	}
	by, err := agent.ForwardLoopback(ctx, proto == egress.UDP, port, guest, gateway)
	if err == nil && p.s.pod != nil {
		p.s.podPorts.keepShut(by, proto == egress.UDP)
	}
	return by, err
}

// serveAll carries the connections to the published ports.
func (p *ports) serveAll() {
	for _, one := range p.open {
		p.serve(one)
	}
}

func (p *ports) serve(one *published) {
	for _, l := range one.listeners {
		p.s.work.Go(func() { gateway.Publish(p.s.ctx, p.s.gateway, l, one.Guest) })
	}
	for _, c := range one.sockets {
		p.s.work.Go(func() { gateway.PublishUDP(p.s.ctx, p.s.gateway, c, one.Guest) })
	}
}
