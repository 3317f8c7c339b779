package policies

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/msb-project/msb/hostname"
)

// SecretHost is one of a secret's hosts: names, and the one port on which the
// value may go there. Another port of the same name may be another program's.
type SecretHost struct {
	Pattern hostname.Pattern
	// Port is the port that the guest connects to; 0 stands for 443.
	Port uint16
}

// errPort is wrapped by errors about a port, whose name is sound or not.
var errPort = errors.New("not a port")

// ParseSecretHost reads "api.example.com", "*.example.com" and
// "api.example.com:8443".
func ParseSecretHost(s string) (SecretHost, error) {
	h := SecretHost{Port: portHTTPS}
	name, port, hasPort := strings.Cut(s, ":")
	if hasPort && strings.Trim(port, "0123456789-,") == "" { // else it is a URL or an IPv6 address
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return SecretHost{}, fmt.Errorf("%q is %w; write one number after the colon, as in \"%s:8443\", and a line for each port", port, errPort, name)
		}
		s, h.Port = name, uint16(n)
	}
	var err error
	h.Pattern, err = hostname.ParsePattern(s)
	return h, err
}

// Match reports whether the value may go to that name at that port.
func (h SecretHost) Match(name hostname.Name, port uint16) bool {
	return port == h.port() && h.Pattern.Match(name)
}

func (h SecretHost) port() uint16 { return cmp.Or(h.Port, portHTTPS) }

// String returns the host as ParseSecretHost reads it.
func (h SecretHost) String() string { return h.withPort(h.Pattern.String()) }

// Display returns String with a readable form of an internationalised name.
func (h SecretHost) Display() string { return h.withPort(h.Pattern.Display()) }

func (h SecretHost) withPort(name string) string {
	if h.port() == portHTTPS {
		return name
	}
	return name + ":" + strconv.Itoa(int(h.Port))
}

// hostPatterns are the names of a secret's hosts, whatever the port.
func (s *Secret) hostPatterns() []hostname.Pattern {
	out := make([]hostname.Pattern, len(s.Hosts))
	for i, h := range s.Hosts {
		out[i] = h.Pattern
	}
	return out
}
