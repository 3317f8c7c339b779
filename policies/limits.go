package policies

// Limits bound what one sandbox uses. 0 stands for no limit in the Egress
// fields; the others are never 0 in a policy from Load.
type Limits struct {
	// TCPConnections and UDPFlows are open at once; the next one is refused
	// (RST, ICMP).
	TCPConnections, UDPFlows int
	// DNSPerSecond is a token bucket's rate, its burst the same number.
	DNSPerSecond int
	// EgressBytes is the sum of bytes that the sandbox may send in its life,
	// all flows and DNS questions together; 0 is unlimited.
	EgressBytes int64
	// EgressRate is in bytes per second; 0 is unlimited.
	EgressRate int64
}

// Defaults of [limits].
const (
	// defaultTCPConnections is above what browsers and package managers open
	// (a few hundred), and bounds a guest's hold on host sockets.
	defaultTCPConnections = 512
	// defaultUDPFlows bounds UDP sockets of the host; DNS isn't counted.
	defaultUDPFlows = 256
	// defaultDNSPerSecond is ten times a busy browser and too slow a channel
	// to carry data out through names.
	defaultDNSPerSecond = 200
)

// DefaultLimits are the limits of a policy that has no [limits].
func DefaultLimits() Limits {
	return Limits{
		TCPConnections: defaultTCPConnections,
		UDPFlows:       defaultUDPFlows,
		DNSPerSecond:   defaultDNSPerSecond,
	}
}

// Default returns the policy of a sandbox that was given none: nothing is
// allowed out, names are resolved by the host's resolvers, limits are the
// defaults.
func Default() *Policy {
	return &Policy{
		Version: currentVersion,
		DNS: DNS{
			Servers: []Server{{Kind: ServerSystem}},
			MinTTL:  DefaultMinTTL,
			MaxTTL:  DefaultMaxTTL,
		},
		Limits: DefaultLimits(),
	}
}
