package mcp

import (
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

	opening sync.Mutex // held by a request that opens a session

	mu   sync.Mutex
	uses map[string]*sessionUse // by the ids of live sessions
}

// sessionUse is how a session is used.
type sessionUse struct {
	busy   int       // requests, streams and calls in progress
	last   time.Time // when one of them ended
	called bool      // it did more than open and list
}

func newSessionBound(server *sdk.Server) *sessionBound {
	b := &sessionBound{most: maxSessions, server: server, now: time.Now, uses: map[string]*sessionUse{}}
	server.AddReceivingMiddleware(b.middleware)
	return b
}

// live are the sessions by their ids.
func (b *sessionBound) live() map[string]*sdk.ServerSession {
	live := map[string]*sdk.ServerSession{}
	for s := range b.server.Sessions() {
		live[s.ID()] = s
	}
	return live
}

// use counts a use of a session until done is called. An id that is no session's has no effect.
func (b *sessionBound) use(id string, called bool) (done func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	u := b.uses[id]
	if u == nil {
		if b.live()[id] == nil {
			return func() {}
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
	}
}

// middleware counts what is in progress in a session, which may outlive its connection.
func (b *sessionBound) middleware(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
		if s, ok := req.GetSession().(*sdk.ServerSession); ok {
			opens := method == "initialize" || method == "ping" || strings.HasPrefix(method, "notifications/") || strings.HasSuffix(method, "/list")
			defer b.use(s.ID(), !opens)()
		}
		return next(ctx, method, req)
	}
}

// open serves a request that opens a session, or reports false if there are too many that are in use.
func (b *sessionBound) open(w http.ResponseWriter, r *http.Request, next http.Handler) bool {
	b.opening.Lock()
	defer b.opening.Unlock()
	if !b.makeRoom() {
		return false
	}
	next.ServeHTTP(w, r)
	return true
}

// makeRoom reports whether there is room for a session. It may end one that isn't in use: first one that made no call, as
// a flood of them would, and of these the one that is idle longest.
func (b *sessionBound) makeRoom() bool {
	b.mu.Lock() // until it has ended: a request that comes meanwhile gets 404
	defer b.mu.Unlock()
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
	delete(b.uses, idle.ID())
	_ = idle.Close() // its client may be gone
	return true
}
