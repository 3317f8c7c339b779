package mcp

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// sessionGrace is how long a session counts as in use after its last request, stream or call.
const sessionGrace = 10 * time.Second

// sessionBound bounds the sessions, which go-sdk doesn't. Many clients leave theirs without DELETE, and one that crashes
// and starts again leaves one each time. Therefore a session that isn't in use ends where another one needs its place. Its
// client gets 404 and opens another; sandboxes belong to the server and stay.
type sessionBound struct {
	most   int
	server *sdk.Server
	now    func() time.Time
	end    func(*sdk.ServerSession) // closes it, but in tests

	opening sync.Mutex // held by a request that opens a session

	mu     sync.Mutex
	uses   map[string]*sessionUse // by the ids of live sessions
	ending map[string]bool        // sessions whose place is another's already
}

// sessionUse is how a session is used.
type sessionUse struct {
	busy   int       // requests, streams and calls in progress
	last   time.Time // when one of them ended
	called bool      // it did more than open and list
}

func newSessionBound(server *sdk.Server) *sessionBound {
	b := &sessionBound{most: maxSessions, server: server, now: time.Now, uses: map[string]*sessionUse{}, ending: map[string]bool{}}
	b.end = func(s *sdk.ServerSession) { _ = s.Close() } // its client may be gone
	server.AddReceivingMiddleware(b.middleware)
	return b
}

// live are the sessions by their ids, without those that are ending. b.mu is held.
func (b *sessionBound) live() map[string]*sdk.ServerSession {
	live := map[string]*sdk.ServerSession{}
	for s := range b.server.Sessions() {
		if !b.ending[s.ID()] {
			live[s.ID()] = s
		}
	}
	return live
}

// use counts a use of a session until done is called. An id that is no session's has no effect. It reports false for a
// session that is ending.
func (b *sessionBound) use(id string, called bool) (done func(), ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ending[id] {
		return func() {}, false
	}
	u := b.uses[id]
	if u == nil {
		if b.live()[id] == nil {
			return func() {}, true
		}
		u = &sessionUse{}
		b.uses[id] = u
	}
	u.busy++
	u.called = u.called || called
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		u.busy--
		u.last = b.now()
	}, true
}

// middleware counts what is in progress in a session, which may outlive its connection.
func (b *sessionBound) middleware(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
		if s, ok := req.GetSession().(*sdk.ServerSession); ok {
			opens := method == "initialize" || method == "ping" || strings.HasPrefix(method, "notifications/") || strings.HasSuffix(method, "/list")
			done, _ := b.use(s.ID(), !opens)
			defer done()
		}
		return next(ctx, method, req)
	}
}

// open serves a request that opens a session, or reports false if there are too many that are in use. The answer is sent
// when the next request may open one: its client may be slow to read it.
func (b *sessionBound) open(w http.ResponseWriter, r *http.Request, next http.Handler) bool {
	held := &heldAnswer{ResponseWriter: w, status: http.StatusOK}
	if !b.openHeld(held, r, next) {
		return false
	}
	w.WriteHeader(held.status)
	_, _ = w.Write(held.body.Bytes()) // a client that is gone needs none
	return true
}

func (b *sessionBound) openHeld(w *heldAnswer, r *http.Request, next http.Handler) bool {
	b.opening.Lock()
	defer b.opening.Unlock()
	if !b.makeRoom() {
		return false
	}
	next.ServeHTTP(w, r)
	return true
}

// heldAnswer is a ResponseWriter that keeps a short answer.
type heldAnswer struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

// WriteHeader implements http.ResponseWriter.
func (h *heldAnswer) WriteHeader(status int) { h.status = status }

// Write implements http.ResponseWriter.
func (h *heldAnswer) Write(b []byte) (int, error) { return h.body.Write(b) }

// Flush implements http.Flusher.
func (h *heldAnswer) Flush() {}

// makeRoom reports whether there is room for a session. It may end one that isn't in use: first one that made no call, as
// a flood of them would, and of these the one that is idle longest.
func (b *sessionBound) makeRoom() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.ending) >= b.most { // each waits for its client
		return false
	}
	live := b.live()
	for id := range b.uses {
		if live[id] == nil {
			delete(b.uses, id)
		}
	}
	if len(live) < b.most {
		return true
	}
	var idle *sdk.ServerSession
	var its *sessionUse
	for id, s := range live {
		u := b.uses[id]
		if u == nil {
			u = &sessionUse{}
		}
		if u.busy > 0 || b.now().Sub(u.last) < sessionGrace {
			continue
		}
		if its == nil || !u.called && its.called || u.called == its.called && u.last.Before(its.last) {
			idle, its = s, u
		}
	}
	if idle == nil {
		return false
	}
	id := idle.ID()
	delete(b.uses, id)
	b.ending[id] = true
	go func() {
		b.end(idle)
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.ending, id)
	}()
	return true
}
