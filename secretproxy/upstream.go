package secretproxy

import (
	"container/list"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/msb-project/msb/hostname"
)

const (
	// maxUpstreams bounds the transports that are kept: the guest chooses
	// names, within its rules (invariant 11). The one unused for longest goes.
	maxUpstreams = 256
	// maxInFlight bounds requests at once to one server, and with them its
	// connections; a request over it waits. http.Transport.MaxConnsPerHost
	// would halve the throughput of 100 HTTP/2 connections.
	maxInFlight = 256
	// maxExchanges bounds requests at once of one sandbox, all servers
	// together, and with them the bodies that are held while they are searched
	// (1 MiB each) and the answers that nobody reads yet; one over it waits.
	maxExchanges = 512
	// streamWindow is how much of one answer over HTTP/2 may wait for a guest
	// that does not read. Go's own is 4 MiB, for each request. At 100 ms to the
	// server it lets 5 MB/s through.
	streamWindow = 512 << 10
	// maxIdleConns is how many unused connections are kept, all servers together: a guest has 512 of its own at most
	// ([limits] tcp_connections), and each of these outlives them (attack: 250 left at each address that rules allow).
	maxIdleConns = 64
	// upstreamIdle is how long an unused connection is kept; shorter than the
	// guest's, so that a stale one is rarely chosen.
	upstreamIdle = 90 * time.Second
	// continueTimeout is how long a body waits for a server's 100 (RFC 9110,
	// section 10.1.1, leaves it to us).
	continueTimeout = time.Second
)

// upstreamKey is what a connection may be shared within: one name at one
// pinned address and port. Nothing is shared between names, whatever a
// certificate says (attack: connection coalescing).
type upstreamKey struct {
	name hostname.Name
	dst  netip.AddrPort
	tls  bool
	// http1 is for upgrades, which HTTP/2 upstreams don't know.
	http1 bool
}

// upstream is one server.
type upstream struct {
	key       upstreamKey
	host      string // host:port, the pool key within the transport
	transport *http.Transport
	slots     chan struct{} // one for each request in flight
	open      atomic.Int64  // connections
}

// spare is how many of its connections nobody uses, if each request in flight has one.
func (up *upstream) spare() int64 { return max(0, up.open.Load()-int64(len(up.slots))) }

// upstreams is the bounded set of servers talked to.
type upstreams struct {
	proxy *Proxy
	mu    sync.Mutex
	order *list.List // of *upstream, most recently used first
	at    map[upstreamKey]*list.Element
	open  atomic.Int64 // connections
}

func newUpstreams(p *Proxy) *upstreams {
	return &upstreams{proxy: p, order: list.New(), at: make(map[upstreamKey]*list.Element)}
}

// get returns the server for that key.
func (u *upstreams) get(key upstreamKey) (*upstream, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if el := u.at[key]; el != nil {
		u.order.MoveToFront(el)
		up, _ := el.Value.(*upstream)
		return up, nil
	}
	up, err := u.newUpstream(key)
	if err != nil {
		return nil, err
	}
	u.at[key] = u.order.PushFront(up)
	for u.order.Len() > maxUpstreams {
		u.drop(u.order.Back())
	}
	return up, nil
}

func (u *upstreams) drop(el *list.Element) {
	if up, ok := u.order.Remove(el).(*upstream); ok {
		delete(u.at, up.key)
		up.transport.CloseIdleConnections()
	}
}

// done ends a request.
func (u *upstreams) done(up *upstream) {
	<-up.slots
	u.mu.Lock()
	el := u.at[up.key]
	u.mu.Unlock()
	if el == nil || el.Value != any(up) { // dropped meanwhile
		up.transport.CloseIdleConnections()
	}
	u.trim()
}

// trim closes unused connections over maxIdleConns, those first of the server that was asked last the longest ago.
func (u *upstreams) trim() {
	if u.open.Load() <= maxIdleConns {
		return
	}
	spare, oldest := int64(0), []*upstream(nil)
	u.mu.Lock()
	for el := u.order.Back(); el != nil; el = el.Prev() {
		if up, ok := el.Value.(*upstream); ok && up.spare() > 0 {
			spare, oldest = spare+up.spare(), append(oldest, up)
		}
	}
	u.mu.Unlock()
	for _, up := range oldest { // to close may wait for a server that doesn't read
		if spare <= maxIdleConns {
			return
		}
		before := up.spare()
		up.transport.CloseIdleConnections()
		spare -= before - up.spare()
	}
}

// closeAll forgets every server; requests under way end as they will.
func (u *upstreams) closeAll() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for u.order.Len() > 0 {
		u.drop(u.order.Back())
	}
}

func (u *upstreams) newUpstream(key upstreamKey) (*upstream, error) {
	serverName := key.name.String()
	if key.name.IsZero() {
		serverName = key.dst.Addr().Unmap().String()
	}
	up := &upstream{key: key, host: net.JoinHostPort(serverName, fmt.Sprint(key.dst.Port())), slots: make(chan struct{}, maxInFlight)}
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(key.tls && !key.http1)
	t := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			c, err := u.dial(ctx, up, u.proxy.cfg.Dial)
			if err != nil {
				return nil, err
			}
			return &headConn{Conn: c, budget: u.proxy.memory}, nil
		},
		Protocols: &protocols,
		// Never the environment's proxy (invariant 1).
		Proxy: nil,
		// The guest's own Accept-Encoding goes out, and nothing is undone
		// behind our back.
		DisableCompression:     true,
		TLSHandshakeTimeout:    handshakeTimeout,
		ExpectContinueTimeout:  continueTimeout,
		IdleConnTimeout:        upstreamIdle,
		MaxIdleConns:           maxIdleConns,
		MaxIdleConnsPerHost:    maxIdleConns,
		MaxResponseHeaderBytes: maxAnswerHead,
		WriteBufferSize:        16 << 10,
		ReadBufferSize:         16 << 10,
		HTTP2:                  &http.HTTP2Config{MaxReceiveBufferPerStream: streamWindow},
	}
	if key.tls {
		roots, err := u.rootsFor(key.name)
		if err != nil {
			return nil, err
		}
		cfg := &tls.Config{
			ServerName: serverName, RootCAs: roots, MinVersion: tls.VersionTLS12,
			ClientSessionCache: tls.NewLRUClientSessionCache(8), NextProtos: []string{"h2", "http/1.1"},
		}
		if key.http1 {
			cfg.NextProtos = cfg.NextProtos[1:]
		}
		t.DialTLSContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return u.dialTLS(ctx, up, cfg) }
	}
	up.transport = t
	return up, nil
}

// rootsFor returns what verifies the certificate of that name: the system's
// roots, which may be nil, and those that [tls] extra_ca adds for it.
func (u *upstreams) rootsFor(name hostname.Name) (*x509.CertPool, error) {
	if u.proxy.cfg.ExtraRoots != nil {
		if own := u.proxy.cfg.ExtraRoots(name); own != nil {
			return own, nil
		}
	}
	roots, cloned := u.proxy.cfg.Roots, false
	for _, extra := range u.proxy.state.Load().policy.TLS.ExtraCA {
		if !slices.ContainsFunc(extra.Hosts, func(h hostname.Pattern) bool { return h.Match(name) }) {
			continue
		}
		pem, err := extraPEM(&extra)
		if err != nil {
			return nil, fmt.Errorf("reading the extra CA for %s: %w", name, err)
		}
		if !cloned {
			if roots, err = copyOf(roots); err != nil {
				return nil, err
			}
			cloned = true
		}
		if !roots.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("the extra CA %s holds no certificate in PEM form", extra.File)
		}
	}
	return roots, nil
}

// copyOf copies a pool; nil is the system's.
func copyOf(roots *x509.CertPool) (*x509.CertPool, error) {
	if roots != nil {
		return roots.Clone(), nil
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("reading the system's roots: %w", err)
	}
	return roots, nil
}
