package policies

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/msb-project/msb/hostname"
)

// Target is where a name of [hosts] leads. Exactly one of Addr and Builtin is
// set.
type Target struct {
	// Addr is dialled from the host. Port 0 stands for the port that the guest
	// connects to.
	Addr netip.AddrPort
	// Builtin is a service of msb's own; "echo" is the only one.
	Builtin string
}

// builtinEcho is an HTTPS service inside the gateway that answers each request
// with what it was sent (package gateway/echo).
const builtinEcho = "echo"

// String returns the target as the file writes it.
func (t Target) String() string {
	switch {
	case t.Builtin != "":
		return "builtin:" + t.Builtin
	case t.Addr.Port() == 0:
		return t.Addr.Addr().String()
	default:
		return t.Addr.String()
	}
}

// parseTarget reads "127.0.0.1:5000", "[::1]:5000", "10.0.0.5" (the same port)
// or "builtin:echo".
func parseTarget(s string) (Target, error) {
	if name, ok := strings.CutPrefix(s, "builtin:"); ok {
		if name != builtinEcho {
			return Target{}, fmt.Errorf("unknown builtin %q; \"builtin:echo\" is the only one", name)
		}
		return Target{Builtin: name}, nil
	}
	if addr, err := netip.ParseAddr(s); err == nil && addr.Zone() == "" {
		return Target{Addr: netip.AddrPortFrom(addr.Unmap(), 0)}, nil
	}
	ap, err := netip.ParseAddrPort(s)
	if err != nil || ap.Port() == 0 || ap.Addr().Zone() != "" {
		return Target{}, fmt.Errorf("%q is not an address; write \"127.0.0.1:5000\", \"[::1]:5000\", \"10.0.0.5\" or \"builtin:echo\"", s)
	}
	return Target{Addr: netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())}, nil
}

// ServerKind is how an upstream resolver is spoken to.
type ServerKind uint8

// The kinds of dns.servers.
const (
	// ServerSystem ("system") is what the host's resolv.conf names.
	ServerSystem ServerKind = iota
	// ServerUDP ("udp://IP[:53]") is plain DNS with TCP fallback.
	ServerUDP
	// ServerTLS ("tls://IP[:853]#name") is DNS over TLS; the certificate must
	// be valid for name.
	ServerTLS
	// ServerHTTPS ("https://host/path") is DNS over HTTPS.
	ServerHTTPS
)

// Server is one upstream resolver.
type Server struct {
	Kind ServerKind
	// Addr is set for ServerUDP and ServerTLS, with its port, and for
	// ServerHTTPS if the URL holds an address.
	Addr netip.AddrPort
	// ServerName is the name to verify, for ServerTLS and ServerHTTPS; zero for
	// a ServerHTTPS whose URL holds an address, which is verified itself.
	ServerName hostname.Name
	// URL is set for ServerHTTPS.
	URL string
}
