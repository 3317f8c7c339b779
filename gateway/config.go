package gateway

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/egress/session"
	"github.com/msb-project/msb/netstack"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/secretproxy/ca"
)

// errConfig is wrapped by errors of New about its Config.
var errConfig = errors.New("the gateway can't have this configuration")

const (
	// dialTimeout bounds a connection attempt; Linux' own limit of two minutes would keep a guest that
	// asks for a dead address waiting, and its slot taken.
	dialTimeout = 20 * time.Second
	peekTimeout = session.PeekTimeout
)

// Dialer opens connections from the host; net.Dialer is one. Tests put "the internet" here.
type Dialer interface {
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

// Pinger sends one echo request from the host and waits for its answer; the error says that none came.
type Pinger interface {
	Ping(ctx context.Context, dst netip.Addr, seq uint16, payload []byte) error
}

// Config is what one gateway is made of. Policy is required.
type Config struct {
	// Sandbox is its name or id, in the audit and in the authority's subject.
	Sandbox string
	Policy  *policies.Policy
	// Floor is an operator's policy that neither Policy nor any later one can loosen; nil for none.
	Floor *policies.Policy
	// Granted are rules beside those of Policy and Floor, which a person approved; see Gateway.Grant.
	Granted []policies.Rule
	// Audit takes every verdict; nil keeps none.
	Audit audit.Sink
	// Link holds what netstack needs to know of the guest's end: addresses, MAC, MTU, DHCP, capture
	// tap. Handler and Limits are the gateway's own.
	Link netstack.Config
	// Capture takes frames, verdicts and the guest's TLS keys while it is started; it becomes the link's
	// Tap. Nil captures nothing.
	Capture *CaptureTap
	// Roots verify upstream servers; nil is the host's.
	Roots *x509.CertPool
	// CA is the sandbox's authority; nil makes one that lives in memory only.
	CA *ca.Authority
	// Placeholders are those of the sandbox's life before, by the secret's name, which its files may hold.
	Placeholders map[string]string
	// Parents are those of the sandboxes that this one was cloned from: the secret's name by the placeholder.
	Parents map[string]string
	// Dialer makes the host's connections. Nil is net.Dialer with the fuse; with any other, the
	// address is checked by the fuse before it is handed over.
	Dialer Dialer
	// Pinger sends the host's echo requests. Nil is an unprivileged ping socket; the address is checked by
	// the fuse before it is handed over.
	Pinger Pinger
	// Node are addresses of this machine that aren't in the gateway's network namespace: what the guest sends there is
	// refused as what it sends to others of this machine's, and clients that come from there are this machine.
	Node []netip.Addr
	// ResolvConf is the file that names the resolvers of dns.servers "system"; "" is the host's.
	ResolvConf string
	// Pod is the guest's first address if it is a pod's, whose ports are open otherwise: the guest sees the clients' own
	// addresses, each client may connect unless an ingress rule of a policy says who may, and only those of a loopback address
	// reach servers that listen on one. The zero value is no pod.
	Pod netip.Addr
	// Owns reports whether the host's kernel keeps what is sent to dst to itself. Nil asks the kernel.
	Owns func(proto egress.Proto, dst netip.AddrPort) bool
	// HasIPv6 says whether the host reaches IPv6; nil looks.
	HasIPv6 func() bool
	// Admit looks at what a later version of the policy file takes from the host, and returns it with its
	// sources held to what was found; its error keeps the policy in force. Nil admits every one.
	Admit func(*policies.Policy) (*policies.Policy, error)
	// Forward is asked about a published port on which the guest refuses connections, or datagrams. It returns a port of
	// the guest that leads to a server there which listens on 127.0.0.1 only. Nil knows none.
	Forward func(ctx context.Context, proto egress.Proto, port uint16) (uint16, error)
	// DialSandbox connects to a port of another sandbox, for a name of [hosts] that leads there. Nil knows no other.
	DialSandbox func(ctx context.Context, name string, port uint16) (net.Conn, error)
	// Use is called with a flow's number in the audit log and a rule, before the rule lets the flow, or a request on it,
	// through. Its error refuses it. Nil refuses nothing.
	Use func(flow uint64, rule string) error
	// EgressUsed is what was taken of [limits] egress_bytes already.
	EgressUsed int64
	// Terminate ends the sandbox after a violation of a secret that asks for it; nil does nothing.
	Terminate func(reason string)
}

func (c *Config) fill() error {
	if c.Policy == nil {
		return fmt.Errorf("%w: it has no policy", errConfig)
	}
	if c.Audit == nil {
		c.Audit = audit.Discard{}
	}
	if c.Capture != nil {
		c.Link.Tap, c.Audit = c.Capture, c.Capture.sink(c.Audit)
	}
	if c.Pinger == nil {
		c.Pinger = pingSocket{}
	}
	if c.Terminate == nil {
		c.Terminate = func(string) {}
	}
	if c.CA == nil {
		authority, err := ca.New(c.Sandbox)
		if err != nil {
			return fmt.Errorf("%w: %w", errConfig, err)
		}
		c.CA = authority
	}
	return nil
}
