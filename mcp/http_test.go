package mcp

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

const testToken = "TESTTOKENTESTTOKENTESTTOKEN"

// withToken sends the token with each request.
type withToken string

func (t withToken) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(t))
	return http.DefaultTransport.RoundTrip(r)
}

// overHTTP serves a playground's server to clients over HTTP.
func overHTTP(t *testing.T, p *playground, change func(*httpServer)) (*httptest.Server, *httpServer) {
	t.Helper()
	h := p.overHTTP("test", HTTPOptions{Token: testToken, Hosts: []string{"msb.example"}})
	if change != nil {
		change(h)
	}
	srv := httptest.NewServer(h)
	t.Cleanup(srv.CloseClientConnections)
	t.Cleanup(srv.Close)
	return srv, h
}

func TestHTTPServesSeveralClients(t *testing.T) {
	t.Parallel()
	p := serve(t, nil)
	srv, _ := overHTTP(t, p, nil)
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			transport := &sdk.StreamableClientTransport{Endpoint: srv.URL + HTTPPath, HTTPClient: &http.Client{Transport: withToken(testToken)}, DisableStandaloneSSE: i%2 == 0}
			c, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), transport, nil)
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = c.Close() }()
			for n := range 3 {
				r, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: "sandbox_exec", Arguments: m{"argv": []string{"echo", fmt.Sprint(i, n)}}})
				if err != nil || r.IsError || !strings.Contains(r.Content[0].(*sdk.TextContent).Text, fmt.Sprintf("echo|%d %d", i, n)) {
					t.Errorf("client %d: %+v, %v", i, r, err)
				}
			}
		})
	}
	all.Wait()
}

// post sends one message and returns the answer's status, its session and its body.
func post(t *testing.T, url, body string, head map[string]string) (status int, session, text string) {
	t.Helper()
	r, err := http.NewRequestWithContext(bounded(t), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for key, value := range map[string]string{"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Authorization": "Bearer " + testToken} {
		r.Header.Set(key, value)
	}
	for key, value := range head {
		switch {
		case key == "Host":
			r.Host = value
		case value == "":
			r.Header.Del(key)
		default:
			r.Header.Set(key, value)
		}
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, answer.Header.Get("Mcp-Session-Id"), string(b)
}

// metaNow is of each request of a client without a session.
const metaNow = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`

const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`

func TestHTTPVersionsChooseSessions(t *testing.T) {
	t.Parallel()
	srv, h := overHTTP(t, serve(t, nil), nil)
	url := srv.URL + HTTPPath
	status, session, text := post(t, url, initialize, nil)
	if status != http.StatusOK || session == "" || !strings.Contains(text, `"protocolVersion":"2025-11-25"`) {
		t.Fatalf("%d, session %q: %s", status, session, text)
	}
	old := map[string]string{"Mcp-Session-Id": session, "Mcp-Protocol-Version": "2025-11-25"}
	if status, _, text := post(t, url, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, old); status != http.StatusAccepted {
		t.Errorf("%d: %s", status, text)
	}
	const call = `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"sandbox_list","arguments":{}%s}}`
	if status, _, text := post(t, url, fmt.Sprintf(call, ""), old); status != http.StatusOK || !strings.Contains(text, "max_sandboxes") {
		t.Errorf("in a session: %d: %s", status, text)
	}
	const meta = "," + metaNow
	status, session, text = post(t, url, fmt.Sprintf(call, meta), map[string]string{"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "sandbox_list"})
	if status != http.StatusOK || session != "" || !strings.Contains(text, "max_sandboxes") {
		t.Errorf("without a session: %d, session %q: %s", status, session, text)
	}
	// A client of a later revision learns that it can speak one without sessions.
	status, session, text = post(t, url, fmt.Sprintf(call, strings.ReplaceAll(meta, "2026-07-28", "2027-01-01")), map[string]string{"Mcp-Protocol-Version": "2027-01-01", "Mcp-Method": "tools/call", "Mcp-Name": "sandbox_list"})
	if status != http.StatusBadRequest || session != "" || !strings.Contains(text, `"supported":["2026-07-28",`) {
		t.Errorf("a later revision: %d, session %q: %s", status, session, text)
	}
	n := 0
	for range h.sessions.alive() {
		n++
	}
	if n != 1 {
		t.Errorf("%d sessions", n)
	}
}

// TestI15_HTTPServesItsOwnClients forges what says who a client is and whom it calls. The twins are what is right.
func TestI15_HTTPServesItsOwnClients(t *testing.T) {
	t.Parallel()
	p := serve(t, nil)
	srv, h := overHTTP(t, p, nil)
	opened := 0
	port := srv.URL[strings.LastIndexByte(srv.URL, ':'):]
	for what, c := range map[string]struct {
		head map[string]string
		path string
		want int
	}{
		"no token": {map[string]string{"Authorization": ""}, "", 401}, "another token": {map[string]string{"Authorization": "Bearer " + testToken[1:]}, "", 401},
		"a longer token": {map[string]string{"Authorization": "Bearer " + testToken + "X"}, "", 401}, "the token alone": {map[string]string{"Authorization": testToken}, "", 401},
		"another scheme": {map[string]string{"Authorization": "Basic " + testToken}, "", 401}, "the token in the path": {map[string]string{"Authorization": ""}, "?token=" + testToken, 401},
		"a name that leads here": {map[string]string{"Host": "evil.example" + port}, "", 403}, "a name like ours": {map[string]string{"Host": "localhost.evil.example" + port}, "", 403},
		"a name that ends like localhost": {map[string]string{"Host": "evillocalhost" + port}, "", 403}, "a name below localhost": {map[string]string{"Host": "evil.localhost" + port}, "", 403},
		"a name that ends like ours": {map[string]string{"Host": "notmsb.example"}, "", 403}, "digits that are a name": {map[string]string{"Host": "127.0.0.1.evil.example"}, "", 403},
		"another site": {map[string]string{"Origin": "https://evil.example"}, "", 403}, "another port's site": {map[string]string{"Origin": "http://127.0.0.1:1"}, "", 403},
		"a page without a site": {map[string]string{"Origin": "null"}, "", 403}, "a file": {map[string]string{"Origin": "file://"}, "", 403},
		"another path":  {nil, "/../x", 404},
		"what is right": {nil, "", 200}, "its own site": {map[string]string{"Origin": srv.URL}, "", 200}, "by localhost": {map[string]string{"Host": "LOCALHOST" + port}, "", 200},
		"by IPv6": {map[string]string{"Host": "[::1]" + port}, "", 200}, "by its name": {map[string]string{"Host": "msb.example" + port}, "", 200},
		"a lower-case scheme": {map[string]string{"Authorization": "bearer " + testToken}, "", 200},
	} {
		url := srv.URL + HTTPPath + c.path
		status, session, text := post(t, url, initialize, c.head)
		if status != c.want || (status == 200) != strings.Contains(text, "jsonrpc") || (status == 200) != (session != "") {
			t.Errorf("%s: %d (%s) with session %q, want %d", what, status, text, session, c.want)
		}
		if c.want == 200 {
			opened++
		}
		if status, _, _ := post(t, url, strings.Repeat("x", 100), c.head); c.want != 200 && status != c.want {
			t.Errorf("%s: %d for what is no JSON: it was read", what, status)
		}
	}
	if n := len(h.sessions.alive()); n != opened {
		t.Errorf("%d sessions are open, want %d: what was refused was served", n, opened)
	}
	w := httptest.NewRecorder()
	r := localRequest(t, initialize)
	r.Header.Del("Authorization")
	if h.ServeHTTP(w, r); w.Header().Get("WWW-Authenticate") != `Bearer realm="msb"` {
		t.Errorf("what is missing: %v", w.Header())
	}
	dev, _ := overHTTP(t, p, func(h *httpServer) { h.opts.Token = "" })
	if status, _, _ := post(t, dev.URL+HTTPPath, initialize, map[string]string{"Authorization": ""}); status != 200 {
		t.Errorf("without a token to ask for: %d", status)
	}
}

func TestI11_HTTPBodiesAreBounded(t *testing.T) {
	t.Parallel()
	srv, h := overHTTP(t, serve(t, nil), nil)
	for what, c := range map[string]struct {
		body, words string
		want        int
	}{
		"too long": {`{"jsonrpc":"2.0","id":1,"method":"ping","x":"` + strings.Repeat("x", maxLine) + `"}`, "more than 8388608 bytes", 413},
		"deep":     {`{"jsonrpc":"2.0","id":1,"method":"ping","params":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + "}", "more than 64 levels", 400},
		"many":     {`[` + strings.Repeat("0,", maxValues) + `0]`, "more than 131072 values", 400},
		"no JSON":  {"GET / HTTP/1.1", "no JSON", 400}, "nothing": {"", "no JSON", 400},
		"two ids":   {`{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}`, "write it once", 400},
		"a batch":   {"[" + strings.TrimSuffix(strings.Repeat(`{"jsonrpc":"2.0","method":"x"},`, maxInflight+1), ",") + "]", "1 to 64 messages", 400},
		"a method":  {`{"jsonrpc":"2.0","id":7,"method":"logging/setLevel"}`, `"id":7`, 200},
		"an answer": {`{"jsonrpc":"2.0","id":7,"result":{}}`, "asks for nothing there", 400},
	} {
		status, _, text := post(t, srv.URL+HTTPPath, c.body, nil)
		if status != c.want || !strings.Contains(text, c.words) {
			t.Errorf("%s: %d %.300s, want %d and %q", what, status, text, c.want, c.words)
		}
	}
	_, session, _ := post(t, srv.URL+HTTPPath, initialize, nil)
	if _, _, text := post(t, srv.URL+HTTPPath, `{"jsonrpc":"2.0","id":7,"method":"logging/setLevel"}`, map[string]string{"Mcp-Session-Id": session}); !strings.Contains(text, `"id":7,"error":{"code":-32601,"message":"no such method: \"logging/setLevel\""}`) {
		t.Errorf("a method in a session: %s", text)
	}
	srv.Close() // which waits for the requests
	if held := h.held.Load(); held != 0 {
		t.Errorf("%d bytes are held", held)
	}
	full, _ := overHTTP(t, serve(t, nil), func(h *httpServer) { h.held.Store(maxBodies) })
	if status, _, text := post(t, full.URL+HTTPPath, initialize, nil); status != http.StatusServiceUnavailable || !strings.Contains(text, "busy") {
		t.Errorf("beyond what is held together: %d %s", status, text)
	}
}

func TestI11_HTTPSessionsAreBounded(t *testing.T) {
	t.Parallel()
	srv, h := overHTTP(t, serve(t, nil), func(h *httpServer) { h.sessions.most = 3 })
	var last string
	for i := range h.sessions.most + 2 {
		status, session, text := post(t, srv.URL+HTTPPath, initialize, nil)
		if want := i < h.sessions.most; (status == http.StatusOK) != want || !want && (status != http.StatusServiceUnavailable || !strings.Contains(text, "at most 3 sessions")) {
			t.Errorf("session %d: %d %s", i, status, text)
		}
		if session != "" {
			last = session
		}
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, srv.URL+HTTPPath, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Mcp-Session-Id", last)
	r.Header.Set("Authorization", "Bearer "+testToken)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if status, _, text := post(t, srv.URL+HTTPPath, initialize, nil); answer.StatusCode != http.StatusNoContent || status != http.StatusOK {
		t.Errorf("after an end (%d): %d %s", answer.StatusCode, status, text)
	}
}

// TestI11_HTTPCallsOfGoneClientsCount: in a session a call goes on when its client has gone, and counts until it has ended.
func TestI11_HTTPCallsOfGoneClientsCount(t *testing.T) {
	t.Parallel()
	c := &callBound{calls: maxInflight - 1}
	entered, leave := make(chan struct{}), make(chan struct{})
	call := c.middleware(func(ctx context.Context, _ string, _ sdk.Request) (sdk.Result, error) {
		select {
		case entered <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		<-leave
		return nil, nil
	})
	request := &sdk.CallToolRequest{Params: &sdk.CallToolParamsRaw{Name: "x"}}
	done := make(chan error)
	go func() { _, err := call(t.Context(), "tools/call", request); done <- err }()
	got(t, entered)
	if _, err := call(bounded(t), "tools/call", request); err == nil || !strings.Contains(err.Error(), "busy") {
		t.Errorf("one too many: %v", err)
	}
	leave <- struct{}{}
	if err := got(t, done); err != nil || c.calls != maxInflight-1 || c.held != 0 {
		t.Errorf("%v, %d calls", err, c.calls)
	}
}

// TestHTTPEndsWithItsContext: open streams keep no server, and its calls end.
func TestHTTPEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- ServeHTTP(ctx, Options{Home: newHome(t)}, "test", l, HTTPOptions{}, quiet) }()
	status, session, text := post(t, "http://"+l.Addr().String()+HTTPPath, initialize, nil)
	if status != http.StatusOK {
		t.Fatalf("%d %s", status, text)
	}
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\nMcp-Session-Id: %s\r\n\r\n", HTTPPath, session); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || !strings.Contains(line, "200") {
		t.Fatalf("%q, %v", line, err)
	}
	cancel()
	if err := got(t, ended); err != nil {
		t.Error(err)
	}
}
