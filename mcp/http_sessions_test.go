package mcp

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// manySessions is a server over HTTP with room for three sessions, and a clock.
type manySessions struct {
	*playground
	t   *testing.T
	url string
	*sessionBound
	passed atomic.Int64
}

func withManySessions(t *testing.T, change func(*playground)) *manySessions {
	t.Helper()
	s := &manySessions{playground: serve(t, nil), t: t}
	if change != nil {
		change(s.playground)
	}
	srv, h := overHTTP(t, s.playground, func(h *httpServer) {
		h.sessions.most, h.sessions.now = 3, func() time.Time { return time.Unix(0, s.passed.Load()) }
	})
	s.url, s.sessionBound = srv.URL+HTTPPath, h.sessions
	return s
}

// wait lets time pass.
func (s *manySessions) wait(d time.Duration) { s.passed.Add(int64(d)) }

// opened opens a session, or returns "" if the server has no room.
func (s *manySessions) opened() string {
	s.t.Helper()
	status, session, text := post(s.t, s.url, initialize, nil)
	if status == http.StatusOK && session != "" {
		return session
	}
	if status != http.StatusServiceUnavailable || !strings.Contains(text, "at most 3 sessions at once, and all are in use") {
		s.t.Errorf("%d %s", status, text)
	}
	return ""
}

// says sends a message in a session.
func (s *manySessions) says(session, message string) (status int, text string) {
	s.t.Helper()
	status, _, text = post(s.t, s.url, message, map[string]string{"Mcp-Session-Id": session})
	return status, text
}

func (s *manySessions) ends(session string, want bool) {
	s.t.Helper()
	status, text := s.says(session, ping("7"))
	if ended := status == http.StatusNotFound; ended != want || !ended && status != http.StatusOK {
		s.t.Errorf("ended %v: %d %s, want %v", ended, status, text, want)
	}
}

const listCall = `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"sandbox_list","arguments":{}}}`

// TestI11_LeftSessionsMakeRoom: sessions that clients leave without an end keep no other client out, once they are idle. The
// twin is the time before that. The client of one that ended gets 404, and its sandbox stays.
func TestI11_LeftSessionsMakeRoom(t *testing.T) {
	t.Parallel()
	s := withManySessions(t, nil)
	first := s.opened()
	if status, text := s.says(first, strings.Replace(strings.Replace(listCall, "sandbox_list", "sandbox_create", 1), "{}", `{"name":"kept"}`, 1)); status != http.StatusOK || strings.Contains(text, `"isError":true`) {
		t.Fatalf("%d %s", status, text)
	}
	s.opened()
	s.opened()
	s.wait(sessionGrace - 1)
	if s.opened() != "" {
		t.Error("the twin: there is room already")
	}
	s.ends(first, false)
	s.wait(1)
	for range 5 { // as a client that crashes at once each time
		if s.opened() == "" {
			t.Fatal("no room")
		}
		s.wait(sessionGrace)
	}
	s.ends(first, false) // the others made no call
	for range 3 {
		s.wait(sessionGrace)
		next := s.opened()
		if next == "" {
			t.Fatal("no room")
		}
		if _, text := s.says(next, listCall); !strings.Contains(text, `kept`) {
			t.Errorf("the sandbox of another session: %s", text)
		}
	}
	s.ends(first, true)
	if n := len(s.alive()); n != 3 || len(s.uses) != 3 {
		t.Errorf("%d sessions, %d known", n, len(s.uses))
	}
}

// TestI11_SessionsThatAreIdleLongestEnd: first those without a call, then those with one.
func TestI11_SessionsThatAreIdleLongestEnd(t *testing.T) {
	t.Parallel()
	for what, message := range map[string]string{
		"a call":       listCall,
		"a resource":   `{"jsonrpc":"2.0","id":2,"method":"resources/read","params":{"uri":"msb://runtime"}}`,
		"a ping":       ping("2"),
		"a list":       `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`,
		"a note":       `{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		"nothing more": "",
	} {
		s := withManySessions(t, nil)
		used := s.opened()
		if message != "" {
			if status, text := s.says(used, message); status != http.StatusOK && status != http.StatusAccepted {
				t.Fatalf("%s: %d %s", what, status, text)
			}
			s.ends(used, false) // after which the message has been handled
		}
		s.wait(1)
		older := s.opened()
		s.wait(1)
		newer := s.opened()
		s.wait(sessionGrace)
		if s.opened() == "" {
			t.Fatalf("%s: no room", what)
		}
		calls := what == "a call" || what == "a resource"
		live := s.alive()
		if (live[used] != nil) != calls || (live[older] != nil) == calls || live[newer] == nil {
			t.Errorf("%s: the used one is there: %v, the older %v, the newer %v", what, live[used] != nil, live[older] != nil, live[newer] != nil)
		}
	}
}

// TestI11_FloodsEndNoUsedSessions: sessions with an open stream, and with a call in progress whose client has gone, last
// however many clients want one. The twins are the same sessions once that is over.
func TestI11_FloodsEndNoUsedSessions(t *testing.T) {
	t.Parallel()
	stuck := make(chan struct{})
	s := withManySessions(t, func(p *playground) {
		p.says(t, false, "sandbox_create", m{"name": "default"})
		p.runner = hungRunner{hungMachine{hung{t, "exec", stuck, new(sync.Once)}}}
	})
	streaming, calling := s.opened(), s.opened()

	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{"Mcp-Session-Id": {streaming}, "Accept": {"text/event-stream"}, "Authorization": {"Bearer " + testToken}}
	stream, err := http.DefaultClient.Do(r)
	if err != nil || stream.StatusCode != http.StatusOK {
		t.Fatalf("%+v, %v", stream, err)
	}
	defer stream.Body.Close()

	gone, leave := context.WithCancel(t.Context())
	call, err := http.NewRequestWithContext(gone, http.MethodPost, s.url, strings.NewReader(strings.Replace(strings.Replace(listCall, "sandbox_list", "sandbox_exec", 1), "{}", `{"command":"x"}`, 1)))
	if err != nil {
		t.Fatal(err)
	}
	call.Header = http.Header{"Mcp-Session-Id": {calling}, "Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}, "Authorization": {"Bearer " + testToken}}
	left := make(chan struct{})
	go func() {
		defer close(left)
		if answer, err := http.DefaultClient.Do(call); err == nil {
			_ = answer.Body.Close()
		}
	}()
	<-stuck
	leave()
	<-left
	s.until("the request of the client that left has ended", func() bool { return s.uses[calling].busy == 1 })

	for range 5 {
		s.wait(time.Hour)
		if s.opened() == "" {
			t.Fatal("no room")
		}
	}
	s.opened() // which has no room
	live := s.alive()
	if live[streaming] == nil || live[calling] == nil {
		t.Fatalf("ended: the one with a stream %v, the one with a call %v", live[streaming] == nil, live[calling] == nil)
	}
	cancel()
	s.calls.close()
	s.until("they are over", func() bool { return s.uses[calling].busy == 0 && s.uses[streaming].busy == 0 })
	s.wait(sessionGrace)
	s.opened()
	s.opened()
	s.opened()
	if live := s.alive(); live[streaming] != nil || live[calling] != nil {
		t.Errorf("the twin: there are %v, %v", live[streaming], live[calling])
	}
}

// TestI11_SlowEndsOfSessionsHoldNoOthers: a session that makes room and whose end waits for its client keeps others from
// nothing, until as many are ending as may be open. Its client gets 404 at once.
func TestI11_SlowEndsOfSessionsHoldNoOthers(t *testing.T) {
	t.Parallel()
	s := withManySessions(t, nil)
	let, end := make(chan struct{}), s.end
	s.end = func(one *sdk.ServerSession) {
		<-let
		end(one)
	}
	var first []string
	for range s.most {
		first = append(first, s.opened())
		s.wait(1) // so that it is idle longer than the next one
	}
	for _, one := range first {
		s.wait(sessionGrace)
		if s.opened() == "" {
			t.Fatal("a slow end keeps others out")
		}
		s.ends(one, true)
	}
	s.wait(sessionGrace)
	if s.opened() != "" {
		t.Error("the sessions that are ending have no bound")
	}
	close(let)
	s.until("they have ended", func() bool { return len(s.ending) == 0 })
	if s.opened() == "" {
		t.Error("no room once they have ended")
	}
}

// alive are the sessions that are not ending, by their ids.
func (b *sessionBound) alive() map[string]*sdk.ServerSession {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.live()
}

// until waits for what the server does at the end of a request.
func (s *manySessions) until(what string, ok func() bool) {
	s.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		s.mu.Lock()
		is := ok()
		s.mu.Unlock()
		if is {
			return
		}
		if time.Now().After(end) {
			s.t.Fatalf("never: %s", what)
		}
	}
}
