package mcp

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/msb-project/msb/internal/lazyregexp"
)

const (
	// watchEvery is how often subscribed resources are checked.
	watchEvery = 2 * time.Second
	// maxSubscriptions bounds those of one session, maxWatched those of all sessions.
	maxSubscriptions = 16
	maxWatched       = 64
)

// watcher tells clients when a resource that they subscribed to has changed. It checks only while there are subscribers.
type watcher struct {
	s       *server
	version string
	every   time.Duration

	protocol *sdk.Server // once it is made

	mu      sync.Mutex
	byURI   map[string]*watched
	looking bool
	closed  bool
	end     chan struct{}
	running sync.WaitGroup
}

// watched is a resource with its subscribers.
type watched struct {
	digest   string
	stamp    string                     // of the log that it is read from, "" for none
	sessions map[*sdk.ServerSession]int // and how often each subscribed
}

func newWatcher(s *server, version string) *watcher {
	return &watcher{s: s, version: version, every: watchEvery, byURI: map[string]*watched{}, end: make(chan struct{})}
}

// subscribe implements sdk.ServerOptions.SubscribeHandler.
func (w *watcher) subscribe(ctx context.Context, req *sdk.SubscribeRequest) error {
	uri := req.Params.URI
	r, ok := parseResource(uri)
	if !ok {
		return noResource(uri)
	}
	if r.about == aboutFile {
		return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "a file of a sandbox can't be subscribed to: read it again"}
	}
	if r.sandbox != "" {
		if _, err := w.s.own(r.sandbox, false); err != nil {
			return notReadable(err)
		}
	}
	stamp, digest := w.stamp(&r), w.digest(ctx, uri) // before the answer, so that later changes are reported
	w.mu.Lock()
	defer w.mu.Unlock()
	w.forgetEnded(req.Session)
	own, all := 0, 0
	for _, one := range w.byURI {
		own += one.sessions[req.Session]
		for _, n := range one.sessions {
			all += n
		}
	}
	if w.closed || own >= maxSubscriptions || all >= maxWatched {
		return &jsonrpc.Error{Code: codeBusy, Message: fmt.Sprintf("busy: at most %d subscriptions of a session, and %d of all", maxSubscriptions, maxWatched)}
	}
	if w.byURI[uri] == nil {
		w.byURI[uri] = &watched{digest: digest, stamp: stamp, sessions: map[*sdk.ServerSession]int{}}
	}
	w.byURI[uri].sessions[req.Session]++
	if !w.looking {
		w.looking = true
		w.running.Go(w.look)
	}
	return nil
}

// unsubscribe implements sdk.ServerOptions.UnsubscribeHandler.
func (w *watcher) unsubscribe(_ context.Context, req *sdk.UnsubscribeRequest) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	one := w.byURI[req.Params.URI]
	if one == nil {
		return nil
	}
	if one.sessions[req.Session]--; one.sessions[req.Session] <= 0 {
		delete(one.sessions, req.Session)
	}
	if len(one.sessions) == 0 {
		delete(w.byURI, req.Params.URI)
	}
	return nil
}

// forgetEnded drops the subscriptions of sessions that have ended, which go-sdk doesn't report. w.mu is held.
func (w *watcher) forgetEnded(but *sdk.ServerSession) {
	live := map[*sdk.ServerSession]bool{but: true}
	for one := range w.protocol.Sessions() {
		live[one] = true
	}
	for uri, one := range w.byURI {
		for session := range one.sessions {
			if !live[session] {
				delete(one.sessions, session)
			}
		}
		if len(one.sessions) == 0 {
			delete(w.byURI, uri)
		}
	}
}

// look checks for changes until there are no subscribers.
func (w *watcher) look() {
	tick := time.NewTicker(w.every)
	defer tick.Stop()
	for {
		select {
		case <-w.end:
			return
		case <-tick.C:
		}
		uris := w.left()
		if uris == nil {
			return
		}
		for _, uri := range uris {
			if w.changed(uri) {
				_ = w.protocol.ResourceUpdated(context.Background(), &sdk.ResourceUpdatedNotificationParams{URI: uri}) // it has no errors
			}
		}
	}
}

// left are the resources with subscribers, nil if there are none: then look ends.
func (w *watcher) left() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.forgetEnded(nil)
	if len(w.byURI) == 0 {
		w.looking = false
		return nil
	}
	uris := make([]string, 0, len(w.byURI))
	for uri := range w.byURI {
		uris = append(uris, uri)
	}
	return uris
}

func (w *watcher) changed(uri string) bool {
	r, _ := parseResource(uri)
	stamp := w.stamp(&r)
	w.mu.Lock()
	one := w.byURI[uri]
	same := one == nil || stamp != "" && one.stamp == stamp
	w.mu.Unlock()
	if same {
		return false
	}
	digest := w.digest(context.Background(), uri)
	w.mu.Lock()
	defer w.mu.Unlock()
	if one = w.byURI[uri]; one == nil {
		return false
	}
	same = one.digest == digest
	one.digest, one.stamp = digest, stamp
	return !same
}

// stamp identifies the state of a resource's audit log without reading it. "" is for a resource without a log.
func (w *watcher) stamp(r *resourceURI) string {
	if r.about != aboutDenials {
		return ""
	}
	st, err := w.s.own(r.sandbox, false)
	if err != nil {
		return ""
	}
	info, err := os.Stat(st.Audit)
	if err != nil {
		return ""
	}
	return fmt.Sprint(st.Created, info.Size(), info.ModTime())
}

// marks match those around a guest's text, whose random number differs each time.
var marks = lazyregexp.New(`(?m)^\[(untrusted sandbox output|end) [^]:]*`)

// digest changes when a resource changes; an error counts as a state of it. Disk usage is ignored.
func (w *watcher) digest(ctx context.Context, uri string) string {
	if uri == resourceSandboxes {
		mine, err := w.s.mine()
		of := fmt.Sprint(err)
		for i := range mine {
			of += fmt.Sprintf("\n%s %t %s", mine[i].Name, mine[i].Running, mine[i].Label)
		}
		return of
	}
	text, err := w.s.resource(ctx, w.version, uri)
	text = marks.Get().ReplaceAllString(text, "")
	sum := sha256.Sum256(fmt.Append(nil, text, err))
	return string(sum[:])
}

// close ends the look.
func (w *watcher) close() {
	w.mu.Lock()
	if !w.closed {
		w.closed = true
		close(w.end)
	}
	w.mu.Unlock()
	w.running.Wait()
}
