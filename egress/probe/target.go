package probe

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/hostname"
)

// standIn is the address that a name is taken to have where the caller gives none: public, and in no
// list of special addresses or known resolvers. Nothing is ever sent there.
var standIn = netip.AddrFrom4([4]byte{93, 184, 215, 14})

// Target is a question: may a guest reach this?
type Target struct {
	// Name is zero when an address was asked for.
	Name hostname.Name
	Addr netip.Addr
	// Given says that Addr is an address of Name's, and doesn't stand for any.
	Given bool
	Port  uint16
	Proto egress.Proto
	// Method and Path are of one request; both empty when none was asked about.
	Method, Path string
}

// open reports whether nothing is known of the address that the name has.
func (t Target) open() bool { return !t.Name.IsZero() && !t.Given && t.Addr == standIn }

// Parse reads HOST:PORT, ADDR:PORT or [ADDR]:PORT, each with an optional /tcp or /udp, or HOST/icmp.
func Parse(s string) (Target, error) {
	t := Target{Proto: egress.TCP, Addr: standIn}
	if strings.Contains(s, "://") {
		return t, fmt.Errorf("%q: it is a URL; write HOST:PORT, and its path with --path", s)
	}
	rest, proto, found := strings.Cut(s, "/")
	if found {
		switch proto {
		case "tcp":
		case "udp":
			t.Proto = egress.UDP
		case "icmp":
			t.Proto = egress.ICMP
			if host, _, err := splitPort(rest); err == nil {
				return t, fmt.Errorf("%q: a ping has no port; write %s/icmp", s, host)
			}
			return t, t.setHost(rest)
		default:
			return t, fmt.Errorf("%q: the protocol must be tcp, udp or icmp", s)
		}
	}
	host, port, err := splitPort(rest)
	if err != nil {
		return t, fmt.Errorf("%q: %w; write HOST:PORT, such as api.github.com:443", s, err)
	}
	t.Port = port
	return t, t.setHost(host)
}

func splitPort(s string) (string, uint16, error) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 || strings.Count(s, ":") > 1 && !strings.HasPrefix(s, "[") {
		return "", 0, fmt.Errorf("there is no port")
	}
	port, err := strconv.ParseUint(s[i+1:], 10, 16)
	if err != nil || port == 0 {
		return "", 0, fmt.Errorf("%q is not a port from 1 to 65535", s[i+1:])
	}
	return strings.Trim(s[:i], "[]"), uint16(port), nil
}

func (t *Target) setHost(host string) error {
	if addr, err := netip.ParseAddr(host); err == nil {
		t.Addr = addr
		return nil
	}
	name, err := hostname.Parse(host)
	if err != nil {
		return fmt.Errorf("%q: %w", host, err)
	}
	t.Name = name
	return nil
}

// String writes the target as Parse reads it.
func (t Target) String() string {
	host := t.Name.String()
	if t.Name.IsZero() {
		host = t.Addr.String()
	}
	if t.Proto == egress.ICMP {
		return host + "/icmp"
	}
	if t.Name.IsZero() {
		host = netip.AddrPortFrom(t.Addr, t.Port).String()
	} else {
		host += ":" + strconv.Itoa(int(t.Port))
	}
	if t.Proto == egress.UDP {
		host += "/udp"
	}
	return host
}
