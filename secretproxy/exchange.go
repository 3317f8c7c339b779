package secretproxy

import (
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/secretproxy/memory"
)

// exchangeKey is the context key under which goproxy's hooks find the exchange.
type exchangeKey struct{}

// exchange is one request and its answer.
type exchange struct {
	guest *guestConn
	state *state
	table *table // without its finder once the head was searched
	out   *responseWriter

	method  string
	path    string // as it stood in the request line, without the query
	host    hostname.Name
	http1   bool
	hasBody bool
	// overrides are methods that headers ask for, separated by commas.
	overrides string
	head      bool // HEAD
	// last is set for HTTP/1 requests with an Upgrade field: nothing behind them
	// is read as HTTP (see strictConn.hold).
	last bool

	verdict egress.Verdict
	ends    []func()     // to be called when it is over
	masked  bool         // values are taken out of the answer
	held    *memory.Hold // what it makes the proxy hold
	unsized bool         // the answer has no length that the guest gets
	used    *usedSecrets
	place   string // where a violation was found
	audited bool
	up      *upstream
	conn    *headConn // of an HTTP/1 server, while a head comes
}

// exchangeEvent starts the one audit event of a request.
func exchangeEvent(p *Proxy, ex *exchange) audit.Event {
	e := ex.guest.event(p.cfg.Sandbox)
	e.Scheme, e.Host, e.Method, e.Path = ex.guest.scheme(), ex.host.String(), ex.method, ex.path
	e.Overrides = ex.overrides
	if ex.host.IsZero() && len(ex.guest.flow.Pinned) == 0 {
		e.Host = ex.guest.dst().Addr().String()
	}
	return e
}

// auditAnswer writes the event of a request that was let through.
func auditAnswer(p *Proxy, ex *exchange, status int) {
	if ex.audited {
		return
	}
	ex.audited = true
	e := exchangeEvent(p, ex)
	e.Action, e.Rule, e.Reason = ex.verdict.Action.String(), ex.verdict.Rule, ex.verdict.Reason.String()
	e.WouldDeny, e.Status, e.Message = ex.verdict.WouldDeny, status, ex.verdict.Message()
	p.cfg.Audit.Emit(e)
}

// growStack grows the stack before the first deep call: each request over HTTP/2 has a goroutine of its own, and moving the
// frames of the search to a larger stack costs more than the search.
//
//go:noinline
func growStack() {
	var room [5 << 10]byte
	runtime.KeepAlive(&room)
}

// serveRequest is the handler of the guest-facing server.
func (p *Proxy) serveRequest(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 2 { // a connection of HTTP/1 has one goroutine, which would keep what it doesn't need while it waits
		growStack()
	}
	guest, _ := r.Context().Value(connKey{}).(*guestConn)
	if guest == nil {
		panic(http.ErrAbortHandler)
	}
	guest.handled.Store(true)
	p.work.Add(1)
	defer p.work.Done()
	// By its own body net/http knows that an answer came before the request's end, and lets the guest read it: else the
	// guest's next bytes would reset the connection.
	defer func(b io.ReadCloser) { r.Body = b }(r.Body)
	p.counters.requests.Add(1)
	if r.ContentLength == 0 {
		// An HTTP/2 request that ended with its head comes with an empty body of
		// unknown length: upstream that would be one more frame and packet.
		r.Body = http.NoBody
	}
	ex := &exchange{
		guest: guest, state: p.state.Load(), method: r.Method, http1: r.ProtoMajor == 1,
		hasBody: r.Body != nil && r.Body != http.NoBody, head: r.Method == http.MethodHead, used: new(usedSecrets), held: &memory.Hold{Budget: p.memory},
	}
	ex.last = ex.http1 && len(r.Header["Upgrade"]) > 0
	ex.path, _, _ = strings.Cut(r.RequestURI, "?")
	defer ex.end()
	if fault := admit(ex, r); fault != nil {
		p.refuse(w, ex, fault)
		return
	}
	defer ex.held.Release()
	if !ex.held.Take(2*headSize(r.Header) + 4*int64(len(r.RequestURI))) {
		p.refuse(w, ex, memoryFull())
		return
	}
	if !ex.http1 && ex.hasBody {
		if !guest.upload(p.memory) {
			p.refuse(w, ex, memoryFull())
			return
		}
		defer guest.uploaded(p.memory)
	}
	body := new(countedBody)
	if ex.hasBody {
		body.ReadCloser, r.Body = r.Body, body
	}
	cleanHop(r)
	if ex.http1 && r.ContentLength < 0 {
		r.Body = &trailedBody{r.Body, r}
	}
	select { // before a body is held
	case p.exchanges <- struct{}{}:
		defer func() { <-p.exchanges }()
	case <-r.Context().Done():
		panic(http.ErrAbortHandler) // the guest went away
	}
	// Only now, after the wait: a waiting request would otherwise use a table that was replaced, and secrets that a reload
	// removed.
	ex.state = p.state.Load()
	ex.table = ex.state.table.Load()
	if fault := ex.judgeUpgrade(r.Header); fault != nil {
		p.refuse(w, ex, fault)
		return
	}
	if fault := p.swap(ex, r); fault != nil { //nolint:contextcheck // r carries its own
		p.cfg.Refused(body.n.Load())
		p.violated(ex, fault)
		p.refuse(w, ex, fault)
		return
	}
	p.send(w, r, ex)
}

// countedBody counts what is read of a request's body.
type countedBody struct {
	io.ReadCloser
	n atomic.Int64
}

// Read implements io.Reader.
func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.n.Add(int64(n))
	return n, err
}

// end says that the request is over.
func (ex *exchange) end() {
	for _, done := range ex.ends {
		done()
	}
}
