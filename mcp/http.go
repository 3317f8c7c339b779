package mcp

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// HTTPPath is where clients reach the server.
const HTTPPath = "/mcp"

// The bounds on what clients make an HTTP server hold, in addition to those on messages.
const (
	// maxConns bounds the connections, maxSessions the sessions of the revisions of the protocol that have them.
	maxConns    = 256
	maxSessions = 32
	// maxRequests bounds the messages in progress, maxBodies their bytes.
	maxRequests = maxInflight
	maxBodies   = maxInflightBytes
	// maxListens bounds the requests that stay open to report changes, in the revisions without sessions.
	maxListens = 16
	// maxHeaders bounds the head of a request, in bytes.
	maxHeaders = 32 << 10
	// headWait and bodyWait are how long a client may take to send a request, writeWait to take a piece of the answer.
	headWait  = 10 * time.Second
	bodyWait  = 30 * time.Second
	writeWait = 30 * time.Second
	// keepConn is how long a connection waits for its next request, keepHTTPSession a session.
	keepConn        = 2 * time.Minute
	keepHTTPSession = time.Hour
	// endWait is how long the last answers may take to be written.
	endWait = 2 * time.Second
)

// statelessVersion is the first revision without sessions.
const statelessVersion = "2026-07-28"

// HTTPOptions say who may use a server over HTTP.
type HTTPOptions struct {
	// Token is what clients send with each request, as "Authorization: Bearer TOKEN". "" asks for none.
	Token string
	// Hosts are the names that clients may use for this machine, besides localhost and its addresses.
	Hosts []string
}

// httpServer serves clients at HTTPPath.
type httpServer struct {
	opts        HTTPOptions
	token       [sha256.Size]byte
	sessions    *sessionBound
	calls       *callBound
	old, now    http.Handler // of the revisions with sessions, and of those without
	requests    chan struct{}
	listens     chan struct{} // requests that stay open for what clients subscribed to
	held        atomic.Int64  // bytes of bodies
	methods     []string      // that are passed on
	body, write time.Duration // bodyWait and writeWait, but in tests
}

var _ http.Handler = (*httpServer)(nil)

// ServeHTTP serves clients that connect to l, several at once, until ctx ends. They share the sandboxes, the bounds and the
// calls in progress.
func ServeHTTP(ctx context.Context, o Options, version string, l net.Listener, h HTTPOptions, log *slog.Logger) error {
	s, err := newServer(o, log)
	if err != nil {
		return err
	}
	for _, w := range s.opts.warnings() {
		log.Warn(w)
	}
	return s.serveHTTP(ctx, s.httpServer(version, h), newGate(l))
}

// httpServer is the server as net/http has it, with the bounds that it holds.
func (s *server) httpServer(version string, h HTTPOptions) *http.Server {
	srv := &http.Server{
		Handler: s.overHTTP(version, h), ReadHeaderTimeout: headWait, IdleTimeout: keepConn, MaxHeaderBytes: maxHeaders,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug), Protocols: new(http.Protocols),
		ConnContext: withVisitor,
	}
	srv.Protocols.SetHTTP1(true)
	return srv
}

// serveHTTP serves until ctx ends. Calls in progress are ended, and answered if their clients take the answer in time.
func (s *server) serveHTTP(ctx context.Context, srv *http.Server, l net.Listener) error {
	defer s.end()
	ended := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		s.calls.close()
		until, cancel := context.WithTimeout(context.WithoutCancel(ctx), endWait)
		defer cancel()
		_ = srv.Shutdown(until) // open streams never end by themselves
		ended <- srv.Close()
	})
	err := srv.Serve(l)
	if !stop() {
		err = <-ended
	}
	return err
}

func (s *server) overHTTP(version string, o HTTPOptions) *httpServer {
	h := &httpServer{opts: o, token: sha256.Sum256([]byte(o.Token)), requests: make(chan struct{}, maxRequests), listens: make(chan struct{}, maxListens), methods: methods, body: bodyWait, write: writeWait}
	withSessions, stateless := s.protocol(version), s.protocol(version)
	h.calls, h.sessions = &callBound{}, newSessionBound(withSessions)
	for _, p := range []*sdk.Server{withSessions, stateless} {
		p.AddReceivingMiddleware(h.calls.middleware)
	}
	quiet := slog.New(warnings{s.log.Handler()})
	// ours checks Host by a stricter rule.
	h.old = sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return withSessions }, &sdk.StreamableHTTPOptions{
		SessionTimeout: keepHTTPSession, MaxRequestBodyBytes: maxLine, Logger: quiet, DisableLocalhostProtection: true,
	})
	h.now = sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return stateless }, &sdk.StreamableHTTPOptions{
		Stateless: true, PropagateRequestCancellation: true, MaxRequestBodyBytes: maxLine, Logger: quiet, DisableLocalhostProtection: true,
	})
	return h
}

// ServeHTTP implements http.Handler. It reads no body before it knows whose the request is.
func (h *httpServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case !h.ours(r.Host):
		http.Error(w, "the header Host names another server; if it is a name of this one, start it with --host", http.StatusForbidden)
		return
	case !sameOrigin(r):
		http.Error(w, "the header Origin names another site", http.StatusForbidden)
		return
	case r.URL.Path != HTTPPath:
		http.NotFound(w, r)
		return
	case !h.knows(r):
		w.Header().Set("WWW-Authenticate", `Bearer realm="msb"`)
		http.Error(w, "the header Authorization has no token of this server: Bearer TOKEN", http.StatusUnauthorized)
		return
	}
	known(r)
	w = &patient{w, http.NewResponseController(w), h.write}
	next := h.old
	stateless := r.Header.Get("Mcp-Protocol-Version") >= statelessVersion
	if stateless {
		next = h.now
	}
	if session := r.Header.Get("Mcp-Session-Id"); session != "" && !stateless {
		done, ok := h.sessions.use(session, false)
		if !ok {
			http.Error(w, "session not found", http.StatusNotFound) // as go-sdk says it
			return
		}
		defer done()
	}
	if r.Method != http.MethodPost {
		next.ServeHTTP(w, r)
		return
	}
	free := take(h.requests)
	if free == nil {
		h.busy(w, fmt.Sprintf("at most %d requests at once", maxRequests))
		return
	}
	defer func() { free() }()
	body, fault := h.read(w, r)
	defer h.held.Add(-int64(len(body)))
	if fault == nil {
		fault = h.check(body, stateless, !stateless && r.Header.Get("Mcp-Session-Id") != "")
	}
	if fault != nil {
		fault.write(w)
		return
	}
	if stateless && listens(body) {
		listen := take(h.listens)
		if listen == nil {
			h.busy(w, fmt.Sprintf("at most %d subscriptions/listen at once", maxListens))
			return
		}
		free() // it stays open: others' requests have the place
		free = listen
	}
	r.Header.Set(sizeHeader, strconv.Itoa(len(body)))
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	if !stateless && r.Header.Get("Mcp-Session-Id") == "" {
		if !h.sessions.open(w, r, h.old) {
			h.busy(w, fmt.Sprintf("at most %d sessions at once, and all are in use; end one with DELETE", h.sessions.most))
		}
		return
	}
	next.ServeHTTP(w, r)
}

// take takes a place and returns the function that frees it, or nil if there is no place.
func take(places chan struct{}) (free func()) {
	select {
	case places <- struct{}{}:
		return func() { <-places }
	default:
		return nil
	}
}

// listens reports whether a message asks for a stream of changes, which stays open.
func listens(body []byte) bool {
	m, err := jsonrpc.DecodeMessage(body)
	r, ok := m.(*jsonrpc.Request)
	return err == nil && ok && r.Method == "subscriptions/listen"
}

// sizeHeader tells callBound the size of a request's body, in bytes. go-sdk holds all of a message until its call ends, such as
// its _meta. What a client sends under this name is overwritten.
const sizeHeader = "Msb-Body-Bytes"

// callBound bounds the tool calls and reads of resources in progress, and their messages. In a session a call outlives its
// connection, so bounds on connections and requests don't cover it.
type callBound struct {
	mu          sync.Mutex
	calls, held int
}

func (c *callBound) middleware(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
		switch req.GetParams().(type) {
		case *sdk.CallToolParamsRaw, *sdk.ReadResourceParams:
		default:
			return next(ctx, method, req)
		}
		size := 0
		if extra := req.GetExtra(); extra != nil {
			size, _ = strconv.Atoi(extra.Header.Get(sizeHeader))
		}
		c.mu.Lock()
		busy := c.calls >= maxInflight || c.held+size > maxInflightBytes
		if !busy {
			c.calls, c.held = c.calls+1, c.held+size
		}
		c.mu.Unlock()
		if busy {
			return nil, &jsonrpc.Error{Code: codeBusy, Message: fmt.Sprintf("busy: at most %d calls of %d bytes together at once; call again when one is answered", maxInflight, maxInflightBytes)}
		}
		defer func() {
			c.mu.Lock()
			c.calls, c.held = c.calls-1, c.held-size
			c.mu.Unlock()
		}()
		return next(ctx, method, req)
	}
}

func (h *httpServer) busy(w http.ResponseWriter, why string) {
	w.Header().Set("Retry-After", "1")
	(&httpFault{http.StatusServiceUnavailable, nil, codeBusy, "busy: " + why}).write(w)
}

// ours reports whether a Host is this server's: an address, localhost, or a name of the options. Any other name may be an
// attacker's that resolves to this machine (DNS rebinding).
func (h *httpServer) ours(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return true
	}
	return strings.EqualFold(host, "localhost") || slices.ContainsFunc(h.opts.Hosts, func(own string) bool { return strings.EqualFold(host, own) })
}

// sameOrigin reports whether a request doesn't come from a page of another site: browsers send the page's origin.
func sameOrigin(r *http.Request) bool {
	all := r.Header.Values("Origin")
	if len(all) == 0 {
		return true
	}
	u, err := url.Parse(all[0])
	return len(all) == 1 && err == nil && (u.Scheme == "http" || u.Scheme == "https") && strings.EqualFold(u.Host, r.Host)
}

// knows reports whether a request has the token. It compares digests, so that the time says nothing about the token's
// bytes.
func (h *httpServer) knows(r *http.Request) bool {
	if h.opts.Token == "" {
		return true
	}
	all := r.Header.Values("Authorization")
	if len(all) != 1 {
		return false
	}
	scheme, token, _ := strings.Cut(all[0], " ")
	sum := sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(sum[:], h.token[:]) == 1 && strings.EqualFold(scheme, "Bearer")
}

// read reads the body of a request, within the bounds on time and on all bodies. The bytes count in h.held until the caller
// subtracts them.
func (h *httpServer) read(w http.ResponseWriter, r *http.Request) (body []byte, fault *httpFault) {
	rc := http.NewResponseController(w)
	if rc.SetReadDeadline(time.Now().Add(h.body)) == nil {
		defer func() {
			if fault == nil { // otherwise net/http would wait for the rest of the body for ever
				_ = rc.SetReadDeadline(time.Time{}) // otherwise the end of the connection would look like the client's end
			}
		}()
	}
	piece := make([]byte, 32<<10)
	from := http.MaxBytesReader(w, r.Body, maxLine)
	for {
		n, err := from.Read(piece)
		body = append(body, piece[:n]...)
		held := h.held.Add(int64(n))
		var long *http.MaxBytesError
		switch {
		case held > maxBodies:
			w.Header().Set("Retry-After", "1")
			return body, &httpFault{http.StatusServiceUnavailable, nil, codeBusy, fmt.Sprintf("busy: at most %d bytes of requests at once", maxBodies)}
		case errors.Is(err, io.EOF):
			return body, nil
		case errors.As(err, &long):
			return body, &httpFault{http.StatusRequestEntityTooLarge, nil, jsonrpc.CodeInvalidRequest, fmt.Sprintf("a message of more than %d bytes; write long files in parts", maxLine)}
		case err != nil:
			return body, &httpFault{http.StatusBadRequest, nil, jsonrpc.CodeInvalidRequest, "the body ends too early"}
		}
	}
}

// httpFault is a request that isn't handled.
type httpFault struct {
	status int
	id     json.RawMessage
	code   int64
	why    string
}

func (f *httpFault) write(w http.ResponseWriter) {
	if f.id == nil {
		f.id = json.RawMessage("null")
	}
	text, err := json.Marshal(struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Error   jsonrpc.Error   `json:"error"`
	}{"2.0", f.id, jsonrpc.Error{Code: f.code, Message: f.why}})
	if err != nil {
		http.Error(w, f.why, f.status)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(f.status)
	_, _ = w.Write(text) // a client that is gone needs none
}

// check applies the bounds of messages on standard input to a body. In a session it lets responses pass: go-sdk ignores
// those to questions that it didn't ask.
func (h *httpServer) check(body []byte, stateless, session bool) *httpFault {
	body = bytes.TrimSpace(body)
	switch {
	case !json.Valid(body):
		return &httpFault{http.StatusBadRequest, nil, jsonrpc.CodeParseError, "no JSON"}
	case !plain(body):
		return &httpFault{http.StatusBadRequest, nil, jsonrpc.CodeInvalidRequest, fmt.Sprintf("more than %d values, or more than %d levels", maxValues, maxDepth)}
	case body[0] != '[':
		return h.checkMessage(body, stateless, session)
	}
	var batch []json.RawMessage
	if err := json.Unmarshal(body, &batch); err != nil || len(batch) == 0 || len(batch) > maxInflight {
		return &httpFault{http.StatusBadRequest, nil, jsonrpc.CodeInvalidRequest, fmt.Sprintf("a batch has 1 to %d messages", maxInflight)}
	}
	for _, one := range batch {
		if fault := h.checkMessage(one, stateless, session); fault != nil {
			return fault
		}
	}
	if !stateless && !session { // its calls would keep others from opening sessions
		return &httpFault{http.StatusBadRequest, nil, jsonrpc.CodeInvalidRequest, "a batch outside of a session: send initialize alone first"}
	}
	return nil
}

func (h *httpServer) checkMessage(raw []byte, stateless, session bool) *httpFault {
	id, once := idOf(raw)
	if !once {
		return &httpFault{http.StatusBadRequest, nil, jsonrpc.CodeInvalidRequest, "id: write it once"}
	}
	if id != nil && !usable(id) {
		return &httpFault{http.StatusBadRequest, nil, jsonrpc.CodeInvalidRequest, "id: write a string of valid UTF-8, or an integer"}
	}
	m, err := jsonrpc.DecodeMessage(raw)
	if err != nil {
		return &httpFault{http.StatusBadRequest, id, jsonrpc.CodeInvalidRequest, "no message of JSON-RPC 2.0: " + printed(err.Error())}
	}
	r, ok := m.(*jsonrpc.Request)
	if !ok && session {
		return nil
	}
	if !ok {
		return &httpFault{http.StatusBadRequest, id, jsonrpc.CodeInvalidRequest, "a response outside of a session: this server asks for nothing there"}
	}
	if r.IsCall() && !slices.Contains(h.methods, r.Method) {
		status := http.StatusOK
		if stateless {
			status = http.StatusNotFound
		}
		return &httpFault{status, id, jsonrpc.CodeMethodNotFound, fmt.Sprintf("no such method: %q", printed(r.Method))}
	}
	return nil
}

// patient is a ResponseWriter with a deadline for each piece: a client that reads nothing would hold a call for ever.
type patient struct {
	http.ResponseWriter
	rc   *http.ResponseController
	wait time.Duration
}

// Unwrap lets http.ResponseController reach the connection.
func (p *patient) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// Write implements http.ResponseWriter.
func (p *patient) Write(b []byte) (int, error) {
	_ = p.rc.SetWriteDeadline(time.Now().Add(p.wait)) // only connections of tests have no deadlines
	return p.ResponseWriter.Write(b)
}
