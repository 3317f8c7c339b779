package dnsguard

import (
	"net"
	"net/netip"
	"sync"
	"time"
)

// ipv6Age is how long the answer to "does the host have IPv6?" is kept.
const ipv6Age = 5 * time.Second

// ipv6Probe looks whether an interface of the host has a global IPv6 address.
// It is the default for Config.HasIPv6.
type ipv6Probe struct {
	clock clock

	mu     sync.Mutex
	looked time.Duration
	known  bool
	has    bool
}

func (p *ipv6Probe) probe() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := p.clock(); !p.known || now-p.looked > ipv6Age {
		p.known, p.looked, p.has = true, now, hasGlobalIPv6()
	}
	return p.has
}

func hasGlobalIPv6() bool {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	for _, a := range addrs {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil {
			addr := prefix.Addr()
			if addr.Is6() && !addr.Is4In6() && addr.IsGlobalUnicast() && !addr.IsPrivate() {
				return true
			}
		}
	}
	return false
}
