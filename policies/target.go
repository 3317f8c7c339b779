package policies

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/msb-project/msb/internal/lazyregexp"
)

// Target is where a name of [hosts] leads. Exactly one of Addr, Builtin and
// Sandbox is set.
type Target struct {
	// Addr is dialled from the host. Port 0 stands for the port that the guest
	// connects to.
	Addr netip.AddrPort
	// Builtin is a service of msb's own; "echo" is the only one.
	Builtin string
	// Sandbox is another sandbox of this user's, and Port one of its guest's TCP
	// ports. Its policy must let this one in (IngressRule.Sandboxes).
	Sandbox string
	Port    uint16
}

// builtinEcho is an HTTPS service inside the gateway that answers each request
// with what it was sent (package gateway/echo).
const builtinEcho = "echo"

// String returns the target as the file writes it.
func (t Target) String() string {
	switch {
	case t.Builtin != "":
		return "builtin:" + t.Builtin
	case t.Sandbox != "":
		return sandboxTarget + t.Sandbox + ":" + strconv.Itoa(int(t.Port))
	case t.Addr.Port() == 0:
		return t.Addr.Addr().String()
	default:
		return t.Addr.String()
	}
}

// sandboxTarget begins a target that is another sandbox.
const sandboxTarget = "sandbox:"

// sandboxName is what a sandbox may be called: one DNS label (RFC 1035).
var sandboxName = lazyregexp.New(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// parseSandboxTarget reads what is behind "sandbox:".
func parseSandboxTarget(s string) (Target, error) {
	name, port, _ := strings.Cut(s, ":")
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 || !sandboxName.MatchString(name) {
		return Target{}, fmt.Errorf("%q names no port of a sandbox; write \"sandbox:db:5432\"", sandboxTarget+s)
	}
	return Target{Sandbox: name, Port: uint16(n)}, nil
}

// parseTarget reads "127.0.0.1:5000", "[::1]:5000", "10.0.0.5" (the same port),
// "sandbox:db:5432" or "builtin:echo".
func parseTarget(s string) (Target, error) {
	if name, ok := strings.CutPrefix(s, "builtin:"); ok {
		if name != builtinEcho {
			return Target{}, fmt.Errorf("unknown builtin %q; \"builtin:echo\" is the only one", name)
		}
		return Target{Builtin: name}, nil
	}
	if at, ok := strings.CutPrefix(s, sandboxTarget); ok {
		return parseSandboxTarget(at)
	}
	if addr, err := netip.ParseAddr(s); err == nil && addr.Zone() == "" {
		return Target{Addr: netip.AddrPortFrom(addr.Unmap(), 0)}, nil
	}
	ap, err := netip.ParseAddrPort(s)
	if err != nil || ap.Port() == 0 || ap.Addr().Zone() != "" {
		return Target{}, fmt.Errorf("%q is not an address; write \"127.0.0.1:5000\", \"[::1]:5000\", \"10.0.0.5\", \"sandbox:db:5432\" or \"builtin:echo\"", s)
	}
	return Target{Addr: netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())}, nil
}

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
