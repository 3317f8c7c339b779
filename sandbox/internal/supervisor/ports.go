package supervisor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"github.com/msb-project/msb/gateway"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// published is a port that this process listens at.
type published struct {
	state.Port
	listeners []net.Listener
}

// openPorts listens at the ports that are published, before the guest boots: one that is taken is told at once.
func (s *supervisor) openPorts() error {
	for _, p := range s.plan.Ports {
		open, err := listenAt(s.ctx, p)
		if err != nil {
			for _, o := range s.ports {
				o.close()
			}
			s.ports = nil
			return err
		}
		s.ports = append(s.ports, *open)
	}
	return nil
}

// anyTries is how often a port is chosen that is free at one loopback address and taken at the other.
const anyTries = 16

func listenAt(ctx context.Context, p state.Port) (*published, error) {
	for try := 1; ; try++ {
		open, err := listenOnce(ctx, p)
		if err == nil || p.Host != 0 || try == anyTries || !errors.Is(err, syscall.EADDRINUSE) {
			return open, err
		}
	}
}

// listenOnce listens at all addresses of the port. An address that this machine doesn't have is left out if it wasn't
// asked for.
func listenOnce(ctx context.Context, p state.Port) (*published, error) {
	open := &published{Port: p}
	var config net.ListenConfig
	for _, a := range p.Addresses() {
		l, err := config.Listen(ctx, "tcp", netip.AddrPortFrom(a, open.Host).String())
		if !p.Address.IsValid() && a.Is6() && (errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT)) {
			continue
		}
		if err != nil {
			open.close()
			if errors.Is(err, syscall.EADDRINUSE) {
				err = fmt.Errorf("%w; %s holds it; take another, or 0 for any", err, portOwner(netip.AddrPortFrom(a, open.Host)))
			}
			return nil, fmt.Errorf("%w: %s: %w", state.ErrPort, p, err)
		}
		open.listeners = append(open.listeners, l)
		if tcp, ok := l.Addr().(*net.TCPAddr); ok {
			open.Host = tcp.AddrPort().Port()
		}
	}
	return open, nil
}

func (p *published) close() {
	for _, l := range p.listeners {
		_ = l.Close()
	}
}

// servePorts carries the connections to the published ports.
func (s *supervisor) servePorts() {
	for _, p := range s.ports {
		for _, l := range p.listeners {
			s.work.Go(func() { gateway.Publish(s.gateway, l, p.Guest) })
		}
	}
}
