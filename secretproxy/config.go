package secretproxy

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/secretproxy/ca"
)

// Judge decides about one request. It must not keep the flow.
type Judge interface {
	Decide(f *egress.Flow) egress.Verdict
}

// DialFunc opens a connection to exactly dst, through the fuse. The name is for
// [hosts] targets and messages; it is the zero Name for a literal address.
type DialFunc func(ctx context.Context, name hostname.Name, dst netip.AddrPort) (net.Conn, error)

// Config is what a Proxy needs. Policy, Judge and Dial are required.
type Config struct {
	// Sandbox is its name or id, for the authority's subject and the audit.
	Sandbox string
	// Policy is read for Secrets and TLS.
	Policy *policies.Policy
	Judge  Judge
	// Audit gets one event for each request; nil discards them.
	Audit audit.Sink
	Dial  DialFunc
	// DialTLS replaces Dial for TLS servers, if the route to them differs; nil is Dial.
	DialTLS DialFunc
	// Roots verify upstreams; nil means the system's (SSL_CERT_FILE is
	// honoured where Go honours it), which are read when the first is verified.
	Roots *x509.CertPool
	// ExtraRoots returns the only roots for a name, or nil for the usual ones. It is for the
	// built-in services of [hosts], which have certificates of their own.
	ExtraRoots func(hostname.Name) *x509.CertPool
	// CA is the sandbox's authority; nil makes a fresh one.
	CA *ca.Authority
	// Placeholders are those of an earlier run of the sandbox, by the secret's name. One is
	// kept if it still has the secret's shape.
	Placeholders map[string]string
	// Parents maps placeholders of the sandboxes that this one was cloned from to the secrets'
	// names. The sandbox's files may hold them.
	Parents map[string]string
	// Terminate stops the sandbox after a violation of a secret that asks for
	// it. It is called at most once, in a goroutine of its own.
	Terminate func(reason string)
	// KeyLog gets the keys of the guest's sessions as lines of an NSS key log,
	// for captures; nil logs none. Those of upstream sessions, which carry real
	// values, are never logged.
	KeyLog io.Writer

	// Refused is called with the number of bytes that were read from the body of a request which was then refused: they
	// count as sent by the sandbox. nil counts none.
	Refused func(bytes int64)

	now    func() time.Time
	rand   io.Reader
	memory int64 // memoryLimit unless a test sets it
	// halfClose is halfCloseTimeout unless a test sets it.
	halfClose time.Duration
}

// ErrVia is wrapped by errors of DialTLS about the upstream proxy, not about the server.
var ErrVia = errors.New("the proxy of [tls] via")

// errConfig is wrapped by errors about a Config.
var errConfig = errors.New("the proxy can't have this configuration")

func (c *Config) fill() error {
	switch {
	case c.Policy == nil:
		return fmt.Errorf("%w: it has no policy", errConfig)
	case c.Judge == nil:
		return fmt.Errorf("%w: it has no judge", errConfig)
	case c.Dial == nil:
		return fmt.Errorf("%w: it has no dialer", errConfig)
	}
	if c.Audit == nil {
		c.Audit = audit.Discard{}
	}
	if c.Terminate == nil {
		c.Terminate = func(string) {}
	}
	if c.DialTLS == nil {
		c.DialTLS = c.Dial
	}
	if c.Refused == nil {
		c.Refused = func(int64) {}
	}
	if c.memory == 0 {
		c.memory = memoryLimit
	}
	if c.halfClose == 0 {
		c.halfClose = halfCloseTimeout
	}
	if c.now == nil {
		c.now = time.Now
	}
	if c.rand == nil {
		c.rand = rand.Reader
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
