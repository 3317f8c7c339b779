package secretproxy

import (
	"context"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/elazarl/goproxy"

	"github.com/msb-project/msb/internal/handoff"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/secretproxy/memory"
)

// Limits of the guest-facing server. They apply before the guest's bytes are parsed.
const (
	// handshakeTimeout is for the guest's TLS handshake.
	handshakeTimeout = 10 * time.Second
	// headTimeout bounds the time from the first byte of a request to the end of its head, and
	// so how long a guest that sends a byte a second holds a goroutine.
	headTimeout = 30 * time.Second
	// idleTimeout is how long a kept connection may wait for the next request.
	idleTimeout = 2 * time.Minute
	// halfCloseTimeout is how long a request whose guest has ended its side may go without a byte of an
	// answer: the guest may have closed both.
	halfCloseTimeout = idleTimeout
	// maxHeadBytes bounds a request's head: the largest that common servers
	// take is 64 KiB (Apache and nginx take 8 KiB a line).
	maxHeadBytes = 64 << 10
	// uploadWindow is how much of the bodies on one HTTP/2 connection may wait for a server that does not
	// read: room for a bulk upload over a link with a round trip of a millisecond.
	uploadWindow = 1 << 20
	// maxStreams bounds requests at once on one HTTP/2 connection; the
	// connections are bounded by [limits] tcp_connections.
	maxStreams = 100
)

// Proxy inspects the connections of one sandbox. It is safe for concurrent
// use.
type Proxy struct {
	cfg       Config
	tlsConfig *tls.Config
	server    *http.Server
	listener  *handoff.Listener
	forward   *goproxy.ProxyHttpServer
	upstreams *upstreams
	exchanges chan struct{} // a slot for each request that was admitted

	state  atomic.Pointer[state] // replaced as a whole by Reload
	reload sync.Mutex            // while sources are read
	tables sync.Mutex            // while a state, or the table in it, is replaced
	// assigned has every placeholder that a secret of a policy had, by the secret's name: one that a reload
	// brings back gets it again. Under reload.
	assigned   map[string]string
	known      *known
	memory     *memory.Budget
	terminated atomic.Bool
	counters   counters

	work   sync.WaitGroup // the server loop, handlers
	ctx    context.Context
	cancel context.CancelFunc
}

// New resolves the secrets' sources, makes their placeholders and starts the
// server that the Serve methods hand connections to. Close ends it.
func New(cfg Config) (*Proxy, error) {
	if err := cfg.fill(); err != nil {
		return nil, err
	}
	quietLibraries()
	ctx, cancel := context.WithCancel(context.Background())
	room := memory.New(cfg.memory)
	values := newKnown(room)
	st, err := newState(ctx, &cfg, values, cfg.Policy, cfg.Judge, cfg.Placeholders)
	if err != nil {
		cancel()
		values.close()
		return nil, err
	}
	p := &Proxy{
		cfg: cfg, known: values, memory: room, listener: handoff.New(&net.TCPAddr{}), exchanges: make(chan struct{}, maxExchanges), ctx: ctx, cancel: cancel,
	}
	p.state.Store(st)
	p.assigned = st.placeholders(make(map[string]string))
	p.upstreams = newUpstreams(p)
	p.tlsConfig = p.guestTLS()
	p.forward = p.newForward()
	p.server = p.newServer()
	p.work.Go(func() { _ = p.server.Serve(p.listener) })
	return p, nil
}

func (p *Proxy) newServer() *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	return &http.Server{
		Handler:           http.HandlerFunc(p.serveRequest),
		ReadHeaderTimeout: headTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeadBytes,
		Protocols:         &protocols,
		// "OPTIONS *" is for the server, and judged like any other request.
		DisableGeneralOptionsHandler: true,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams:          maxStreams,
			MaxReceiveBufferPerConnection: uploadWindow,
			MaxReceiveBufferPerStream:     uploadWindow / 2,
			MaxReadFrameSize:              16 << 10,
		},
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, guestOf(c))
		},
		ConnState:   p.connState,
		BaseContext: func(net.Listener) context.Context { return p.ctx },
		// What a guest sends wrong is answered or audited, never logged.
		ErrorLog: log.New(io.Discard, "", 0),
	}
}

// connState has half-closed connections wait for answers only, and counts the server's goroutines, so that Close can
// wait for them: http.Server.Close doesn't. The server's own loop is counted as well, which makes adding safe while
// someone waits. An idle connection has written its answer.
func (p *Proxy) connState(c net.Conn, state http.ConnState) {
	if strict, ok := c.(*strictConn); ok {
		strict.half.setAnswering(state == http.StateActive)
	}
	switch state {
	case http.StateNew:
		p.work.Add(1)
	case http.StateClosed, http.StateHijacked:
		p.work.Done()
	case http.StateIdle:
		if guest := guestOf(c); guest != nil {
			guest.handled.Store(false)
		}
	case http.StateActive:
	}
}

// Placeholders returns the placeholder of each secret by its name.
func (p *Proxy) Placeholders() map[string]string {
	return p.state.Load().placeholders(make(map[string]string))
}

// Warnings returns sentences for the operator about sources that others may
// read.
func (p *Proxy) Warnings() []string {
	var out []string
	for _, s := range p.state.Load().table.Load().secrets {
		if w := s.holder.LooseMode(); w != "" {
			out = append(out, w)
		}
	}
	return out
}

// Reload takes a new policy. Secrets that keep name and shape keep their
// placeholder, so that a running guest's environment stays right; sources are
// read again. On an error the old policy stays in force.
func (p *Proxy) Reload(policy *policies.Policy, judge Judge) error {
	p.reload.Lock()
	defer p.reload.Unlock()
	next, err := newState(p.ctx, &p.cfg, p.known, policy, judge, p.assigned)
	if err != nil {
		return err
	}
	next.placeholders(p.assigned)
	p.tables.Lock()
	// Only now, so that no token is lost that was minted while sources were read.
	entries := next.table.Load().secrets
	next.table.Store(newTable(append(entries, p.state.Load().inherited(entries)...)))
	p.state.Store(next)
	p.tables.Unlock()
	p.upstreams.closeAll() // roots or via may have changed
	return nil
}

// Rejudge takes a new policy and judge, and leaves the secrets as they are: policy differs in its rules alone.
func (p *Proxy) Rejudge(policy *policies.Policy, judge Judge) {
	p.reload.Lock()
	defer p.reload.Unlock()
	p.tables.Lock()
	defer p.tables.Unlock()
	next := &state{policy: policy, judge: judge}
	next.table.Store(p.state.Load().table.Load())
	p.state.Store(next)
}

// Close ends every connection and overwrites every value.
func (p *Proxy) Close() error {
	p.cancel()
	err := p.server.Close()
	_ = p.listener.Close()
	p.work.Wait()
	p.upstreams.closeAll()
	p.known.close()
	return err
}
