package state

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Port is a TCP port of this machine that leads to one of the guest's.
type Port struct {
	// Address is the loopback address to listen at; the zero one is both, 127.0.0.1 and ::1.
	Address netip.Addr `json:"address,omitzero"`
	// Host is this machine's port; 0 is any that is free, until the sandbox runs.
	Host uint16 `json:"host"`
	// Guest is the guest's.
	Guest uint16 `json:"guest"`
}

// ErrPort is wrapped by errors about a port that can't be published.
var ErrPort = errors.New("port can't be published")

// ParsePort reads "[ADDRESS:]HOST:GUEST" or "GUEST", with "/tcp" behind it if need be.
func ParsePort(s string) (p Port, err error) {
	fail := func(why string) (Port, error) {
		return Port{}, fmt.Errorf("%w: %q: %s; write HOSTPORT:PORT, such as 8080:80, or PORT for any port of this machine", ErrPort, s, why)
	}
	text, proto, has := strings.Cut(s, "/")
	if has && proto != "tcp" {
		return fail("only tcp is published")
	}
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
		if !p.Address.IsLoopback() || p.Address.Is4In6() {
			return fail("only this machine may connect: leave the address out, or give 127.0.0.1 or [::1]")
		}
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
		return netip.AddrPortFrom(p.Address, p.Host).String() + fmt.Sprintf(":%d", p.Guest)
	}
	return text
}
