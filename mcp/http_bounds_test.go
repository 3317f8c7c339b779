package mcp

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestI11_HTTPBoundsAreTheDocumented ones, of a server as it starts.
func TestI11_HTTPBoundsAreTheDocumented(t *testing.T) {
	t.Parallel()
	h := serve(t, nil).overHTTP("test", HTTPOptions{})
	if cap(h.requests) != maxRequests || cap(h.listens) != maxListens || h.sessions.most != maxSessions || h.body != bodyWait || h.write != writeWait {
		t.Errorf("%d requests, %d listens, %d sessions, %s, %s", cap(h.requests), cap(h.listens), h.sessions.most, h.body, h.write)
	}
	page, err := os.ReadFile("../docs/mcp.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, says := range []string{
		fmt.Sprintf("have sessions, at most %d at once, which end with DELETE or after an hour without a request", maxSessions),
		fmt.Sprintf("in progress for %.0f seconds", sessionGrace.Seconds()),
		fmt.Sprintf("%d requests in progress, of %d MiB together, %d calls, likewise, and %d connections", maxRequests, maxBodies>>20, maxInflight, maxConns),
		fmt.Sprintf("at most %d are kept, for %.0f seconds each", maxStrangers, strangerWait.Seconds()),
		fmt.Sprintf("takes longer than %.0f seconds to send a request, or to read a piece of an answer", bodyWait.Seconds()),
	} {
		if !strings.Contains(string(page), says) {
			t.Errorf("docs/mcp.md doesn't say %q", says)
		}
	}
	if keepHTTPSession != time.Hour || writeWait != bodyWait || headWait > bodyWait || maxRequests != maxInflight || maxBodies != maxInflightBytes {
		t.Error("the other bounds are not those that it says")
	}
}

// TestI11_HTTPCallsAreBounded in the revisions with sessions and in those without. The twin is what is no call.
func TestI11_HTTPCallsAreBounded(t *testing.T) {
	t.Parallel()
	srv, h := overHTTP(t, serve(t, nil), nil)
	_, session, _ := post(t, srv.URL+HTTPPath, initialize, nil)
	have := func(calls, held int) {
		h.calls.mu.Lock()
		defer h.calls.mu.Unlock()
		h.calls.calls, h.calls.held = calls, held
	}
	has := func() (calls, held int) {
		h.calls.mu.Lock()
		defer h.calls.mu.Unlock()
		return h.calls.calls, h.calls.held
	}
	const message = `{"jsonrpc":"2.0","id":2,"method":"%s","params":{%s%s}}`
	for what, c := range map[string]struct {
		method, params, name string
		bounded              bool
	}{
		"a call": {"tools/call", `"name":"sandbox_list","arguments":{},`, "sandbox_list", true}, "a resource": {"resources/read", `"uri":"msb://runtime",`, "msb://runtime", true},
		"a list": {"tools/list", "", "", false}, "a prompt": {"prompts/get", `"name":"review_sandbox",`, "review_sandbox", false},
	} {
		for _, stateless := range []bool{false, true} {
			head, meta := map[string]string{"Mcp-Session-Id": session}, `"_meta":{}`
			if stateless {
				meta, head = metaNow, map[string]string{"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": c.method, "Mcp-Name": c.name}
			}
			for most, full := range map[int]bool{maxInflight - 1: false, maxInflight: true} {
				have(most, 0)
				_, _, text := post(t, srv.URL+HTTPPath, fmt.Sprintf(message, c.method, c.params, meta), head)
				if busy := strings.Contains(text, `"code":-32000,"message":"busy: at most 64 calls`); busy != (c.bounded && full) || !busy && !strings.Contains(text, `"result"`) {
					t.Errorf("%s beside %d calls, without sessions %v: %s", what, most, stateless, text)
				}
				if n, _ := has(); n != most {
					t.Errorf("%s: it counts on, as %d", what, n)
				}
			}
			have(0, 0)
			// go-sdk holds all of the message, and not just its arguments.
			long := fmt.Sprintf(message, c.method, c.params, strings.Replace(meta, "{", `{"x":"`+strings.Repeat("x", 1<<10)+`",`, 1))
			long = strings.Replace(long, ",}", "}", 1)
			head[sizeHeader] = "1"
			for held, full := range map[int]bool{maxInflightBytes - len(long): false, maxInflightBytes - len(long) + 1: c.bounded} {
				have(0, held)
				_, _, text := post(t, srv.URL+HTTPPath, long, head)
				if busy := strings.Contains(text, "busy: at most 64 calls"); busy != full || !busy && !strings.Contains(text, `"result"`) {
					t.Errorf("%s beside %d bytes: %s", what, held, text)
				}
				if _, now := has(); now != held {
					t.Errorf("%s beside %d bytes: %d are held", what, held, now)
				}
			}
			have(0, 0)
		}
	}
}

// TestI11_UnusedSessionsEnd an hour after their last request.
func TestI11_UnusedSessionsEnd(t *testing.T) {
	t.Parallel()
	home := newHome(t)
	synctest.Test(t, func(t *testing.T) {
		s, err := newServer(Options{Home: home}, quiet)
		if err != nil {
			t.Fatal(err)
		}
		h := s.overHTTP("test", HTTPOptions{})
		ask := func(session, body string) *httptest.ResponseRecorder {
			r := localRequest(t, body)
			r.Header.Set("Mcp-Session-Id", session)
			if session == "" {
				r.Header.Del("Mcp-Session-Id")
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			return w
		}
		session := ask("", initialize).Header().Get("Mcp-Session-Id")
		for range 3 {
			time.Sleep(time.Hour - time.Second)
			if w := ask(session, ping("2")); w.Code != http.StatusOK {
				t.Fatalf("used within the hour: %d %s", w.Code, w.Body)
			}
		}
		time.Sleep(time.Hour - 1)
		if n := len(h.sessions.alive()); n != 1 {
			t.Errorf("%d sessions before the hour is over", n)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if w := ask(session, ping("3")); w.Code != http.StatusNotFound || len(h.sessions.alive()) != 0 {
			t.Errorf("after an hour: %d %s", w.Code, w.Body)
		}
		s.end()
	})
}

// TestSessionsAreOfOlderEras: whoever names a session in the era that has none is answered as one without.
func TestSessionsAreOfOlderEras(t *testing.T) {
	t.Parallel()
	srv, _ := overHTTP(t, serve(t, nil), nil)
	head := map[string]string{"Mcp-Protocol-Version": "2026-07-28", "Mcp-Session-Id": "anything"}
	status, _, text := post(t, srv.URL+HTTPPath, `{"jsonrpc":"2.0","id":7,"result":{}}`, head)
	if status != http.StatusBadRequest || !strings.Contains(text, "a response outside of a session") {
		t.Errorf("%d %s", status, text)
	}
}
