package upstream

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"

	"github.com/msb-project/msb/policies"
)

// DialFunc opens a connection to an upstream, as net.Dialer.DialContext.
type DialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

// server is one upstream resolver. exchange asks it once, for at most
// attemptTimeout.
type server interface {
	exchange(ctx context.Context, q Query) (*dns.Msg, error)
	fmt.Stringer
	closeIdle()
}

// RcodeError is a failure response: SERVFAIL, REFUSED and the like.
type RcodeError int

func (e RcodeError) Error() string {
	if text, ok := dns.RcodeToString[int(e)]; ok {
		return "the server says " + text
	}
	return fmt.Sprintf("the server says rcode %d", int(e))
}

// Set is the resolvers of one policy, asked in order until one answers.
// One that failed is asked last for backOffTime.
type Set struct {
	clock  func() time.Duration
	fixed  []*backingOff // in the policy's order; nil stands for system
	system *systemConf   // nil if the policy doesn't name it
}

// errNotAsked says that the guard was closed before a server was asked.
var errNotAsked = errors.New("no server was asked; the resolver is closed")

// backingOff is a server with the time until which it is asked last.
type backingOff struct {
	server
	until atomic.Int64
}

// Options is what connections to upstreams are made with.
type Options struct {
	// Clock tells the time since some start, unmoved by changes of the wall clock.
	Clock func() time.Duration
	Dial  DialFunc       // nil: the host's
	Roots *x509.CertPool // verify servers over TLS; nil: the host's
	// ResolvConf is the file that names the system's resolvers; "" is /etc/resolv.conf.
	ResolvConf string
}

// New returns the resolvers that a policy names; none of them is asked yet.
func New(servers []policies.Server, opts Options) (*Set, error) {
	if opts.Dial == nil {
		opts.Dial = (&net.Dialer{}).DialContext
	}
	if opts.ResolvConf == "" {
		opts.ResolvConf = resolvConfPath
	}
	u := &Set{clock: opts.Clock}
	if len(servers) == 0 {
		servers = []policies.Server{{Kind: policies.ServerSystem}}
	}
	for _, s := range servers {
		switch s.Kind {
		case policies.ServerSystem:
			if u.system == nil {
				u.system = newSystemConf(opts)
				u.fixed = append(u.fixed, nil)
			}
		case policies.ServerUDP:
			u.fixed = append(u.fixed, &backingOff{server: &plainServer{addr: s.Addr, dial: opts.Dial, name: "udp://" + s.Addr.String()}})
		case policies.ServerTLS:
			u.fixed = append(u.fixed, &backingOff{server: newTLSServer(s, opts)})
		case policies.ServerHTTPS:
			u.fixed = append(u.fixed, &backingOff{server: newHTTPSServer(s, opts)})
		default:
			return nil, fmt.Errorf("dns.servers holds a server of unknown kind %d; use system, udp://, tls:// or https://", s.Kind)
		}
	}
	return u, nil
}

// order lists the servers to ask, those that failed of late at the end.
func (u *Set) order() []*backingOff {
	now := int64(u.clock())
	var ready, deprioritized []*backingOff
	add := func(s *backingOff) {
		if now < s.until.Load() {
			deprioritized = append(deprioritized, s)
		} else {
			ready = append(ready, s)
		}
	}
	for _, s := range u.fixed {
		if s != nil {
			add(s)
			continue
		}
		for _, s := range u.system.servers() {
			add(s)
		}
	}
	return append(ready, deprioritized...)
}

// Ask returns the first answer of a server, NOERROR or NXDOMAIN, and which
// server gave it; or what went wrong with each.
func (u *Set) Ask(ctx context.Context, q Query) (*dns.Msg, string, error) {
	deadline := time.Now().Add(lookupTimeout)
	servers := u.order()
	var faults []error
	for i := range max(maxAttempts, len(servers)) {
		if ctx.Err() != nil || time.Now().After(deadline) {
			break
		}
		s := servers[i%len(servers)]
		msg, err := attempt(ctx, s, q)
		if err == nil {
			return msg, s.String(), nil
		}
		if spent := (SpentError{}); errors.As(err, &spent) {
			return nil, "", spent
		}
		fault := fmt.Errorf("%s: %w", s, err)
		if !slices.ContainsFunc(faults, func(f error) bool { return f.Error() == fault.Error() }) {
			faults = append(faults, fault)
		}
		var rcode RcodeError
		if !errors.As(err, &rcode) {
			s.until.Store(int64(u.clock() + backOffTime))
		} else if len(servers) == 1 {
			break // a server that works and says no says it again
		}
	}
	if len(faults) == 0 {
		return nil, "", errNotAsked
	}
	return nil, "", errors.Join(faults...)
}

func attempt(ctx context.Context, s server, q Query) (*dns.Msg, error) {
	msg, err := s.exchange(ctx, q)
	if err != nil {
		return nil, err
	}
	if msg.Rcode != dns.RcodeSuccess && msg.Rcode != dns.RcodeNameError {
		return nil, RcodeError(msg.Rcode)
	}
	return msg, nil
}

// Close closes connections that are kept for later.
func (u *Set) Close() {
	for _, s := range u.fixed {
		if s != nil {
			s.closeIdle()
		}
	}
}

// boundExchange makes reads and writes on conn end after attemptTimeout, or when
// ctx does. stop must be called when conn is done with, and reports whether ctx
// was still going.
func boundExchange(ctx context.Context, conn net.Conn) (stop func() bool) {
	_ = conn.SetDeadline(time.Now().Add(attemptTimeout))
	return context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
}
