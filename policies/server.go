package policies

import (
	"fmt"
	"net/netip"

	"github.com/msb-project/msb/hostname"
)

// ServerKind is how an upstream resolver is spoken to.
type ServerKind uint8

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

// String returns the server as the file writes it.
func (s Server) String() string {
	switch s.Kind {
	case ServerSystem:
		return "system"
	case ServerUDP:
		return "udp://" + s.Addr.String()
	case ServerTLS:
		return "tls://" + s.Addr.String() + "#" + s.ServerName.String()
	case ServerHTTPS:
		return s.URL
	}
	return fmt.Sprintf("invalid(%d)", s.Kind)
}
