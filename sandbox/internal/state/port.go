package state

import (
	"cmp"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/policies"
)

// Port is a TCP or UDP port of this machine that leads to one of the guest's.
type Port struct {
	// Address is the one of this machine to listen at, such as 0.0.0.0 for all that are IPv4; the zero one is 127.0.0.1
	// and ::1.
	Address netip.Addr `json:"address,omitzero"`
	// Host is this machine's port; 0 is any that is free, until the sandbox runs.
	Host uint16 `json:"host"`
	// Guest is the guest's.
	Guest uint16 `json:"guest"`
	// UDP means that both are ports of UDP, not of TCP.
	UDP bool `json:"udp,omitempty"`
}

// ErrPort is wrapped by errors about a port that can't be published.
var ErrPort = agentclient.ErrPort

// ParsePort reads "[ADDRESS:]HOST:GUEST" or "GUEST", with "/udp" behind it for UDP, or "/tcp".
func ParsePort(s string) (p Port, err error) {
	fail := func(why string) (Port, error) {
		return Port{}, fmt.Errorf("%w: %q: %s; write HOSTPORT:PORT, such as 8080:80, or PORT for any port of this machine", ErrPort, s, why)
	}
	text, proto, has := strings.Cut(s, "/")
	if has && proto != "tcp" && proto != "udp" {
		return fail("behind the slash stands tcp or udp")
	}
	p.UDP = proto == "udp"
	address, host := "", "0"
	guest := text
	if i := strings.LastIndexByte(text, ':'); i >= 0 {
		host, guest = text[:i], text[i+1:]
		if i := strings.LastIndexByte(host, ':'); i >= 0 {
			address, host = host[:i], cmp.Or(host[i+1:], "0")
		}
	}
	if address != "" {
		p.Address, err = netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(address, "["), "]"))
		if err != nil {
			return fail("the address is none")
		}
		if p.Address.Is4In6() || p.Address.IsMulticast() {
			return fail("no program listens at this address; write IPv4 as 192.168.1.2")
		}
	}
	if portRange(guest) || portRange(host) {
		return fail("ranges are not published; publish each port by itself")
	}
	g, err := strconv.ParseUint(guest, 10, 16)
	if err != nil || g == 0 {
		return fail("the guest's port is no number from 1 to 65535")
	}
	h, err := strconv.ParseUint(host, 10, 16)
	if err != nil {
		return fail("this machine's port is no number from 0 to 65535")
	}
	p.Host, p.Guest = uint16(h), uint16(g)
	return p, nil
}

// portRange tells whether text is a range, as docker publishes: 8000-8010.
func portRange(text string) bool {
	first, last, ok := strings.Cut(text, "-")
	if !ok {
		return false
	}
	_, err1 := strconv.ParseUint(first, 10, 16)
	_, err2 := strconv.ParseUint(last, 10, 16)
	return err1 == nil && err2 == nil
}

// Addresses are those that the port is listened at.
func (p Port) Addresses() []netip.Addr {
	if p.Address.IsValid() {
		return []netip.Addr{p.Address}
	}
	return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
}

// String is what ParsePort reads.
func (p Port) String() string {
	text := fmt.Sprintf("%d:%d", p.Host, p.Guest)
	if p.Address.IsValid() {
		text = netip.AddrPortFrom(p.Address, p.Host).String() + fmt.Sprintf(":%d", p.Guest)
	}
	if p.UDP {
		text += "/udp"
	}
	return text
}

// Proto is "tcp" or "udp".
func (p Port) Proto() string {
	if p.UDP {
		return "udp"
	}
	return "tcp"
}

// Meant reports whether other names p; in other, 0 is any port and no address is any address.
func (p Port) Meant(other Port) bool {
	return p.Guest == other.Guest && p.UDP == other.UDP && (other.Host == 0 || other.Host == p.Host) && (!other.Address.IsValid() || other.Address == p.Address)
}

// NotPublished is the error of a removal of p, which the sandbox of that name doesn't publish.
func NotPublished(p Port, name string) error {
	return fmt.Errorf("%w: %s is not published; `msb port ls %s` lists those that are", ErrPort, strings.TrimPrefix(p.String(), "0:"), name)
}

// maxPorts bounds how many ports one sandbox publishes.
const maxPorts = 64

// CheckPorts looks whether all of them can be published by one sandbox: with noNet it has no network device. The floor
// is nil for none.
func CheckPorts(ports []Port, noNet bool, policy, floor *policies.Policy) error {
	switch {
	case len(ports) == 0:
		return nil
	case noNet:
		return fmt.Errorf("%w: a guest without a network device can't be reached; leave --no-net or the ports out", ErrPort)
	case floor != nil && !floor.Ingress.AdmitsAddresses():
		return fmt.Errorf("%w: the operator's floor has no [[ingress.allow]] rule with cidrs, without which nothing is published; leave the ports out, or have one added there", ErrPort)
	case len(ports) > maxPorts:
		return fmt.Errorf("%w: %d of them, at most %d may be", ErrPort, len(ports), maxPorts)
	}
	type place struct {
		at  netip.AddrPort
		udp bool
	}
	taken := make(map[place]bool)
	for _, p := range ports {
		if p.Guest == 0 {
			return fmt.Errorf("%w: %s; give the guest's port", ErrPort, p)
		}
		if p.Address.IsValid() && !p.Address.IsLoopback() && !policy.Ingress.AdmitsAddresses() {
			return fmt.Errorf("%w: %s is for other machines, and the policy lets none connect; add [[ingress.allow]] with cidrs = [\"192.168.1.0/24\"], say, or leave the address out for this machine alone", ErrPort, p)
		}
		for _, a := range p.Addresses() {
			at := netip.AddrPortFrom(a, p.Host)
			if p.Host != 0 && taken[place{at, p.UDP}] {
				return fmt.Errorf("%w: two of them at %s of this machine; give one of them another port, 0 for any", ErrPort, at)
			}
			taken[place{at, p.UDP}] = true
		}
	}
	return nil
}
