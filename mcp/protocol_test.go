package mcp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/msb-project/msb/sandbox"
)

// wire is a server at the other end of its standard streams.
type wire struct {
	t   *testing.T
	in  io.WriteCloser
	out *bufio.Scanner
}

func newWire(t *testing.T, home *sandbox.Home) *wire {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = Serve(t.Context(), Options{Home: home}, "test", inR, outW, quiet)
		_ = outW.Close()
	}()
	t.Cleanup(func() { _ = inW.Close(); <-done })
	w := &wire{t, inW, bufio.NewScanner(outR)}
	w.out.Buffer(nil, 1<<20)
	return w
}

func (w *wire) send(line string) {
	w.t.Helper()
	if _, err := io.WriteString(w.in, line+"\n"); err != nil {
		w.t.Fatal(err)
	}
}

// ask sends a request and returns its result.
func (w *wire) ask(id int, method, params string) map[string]any {
	w.t.Helper()
	w.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, id, method, params))
	for w.out.Scan() {
		var r struct {
			ID     int            `json:"id"`
			Result map[string]any `json:"result"`
			Error  any            `json:"error"`
		}
		if err := json.Unmarshal(w.out.Bytes(), &r); err != nil {
			w.t.Fatalf("no message: %q", w.out.Text())
		}
		if r.ID != id {
			continue // a notification
		}
		if r.Error != nil {
			w.t.Fatalf("%s: %v", method, r.Error)
		}
		return r.Result
	}
	w.t.Fatalf("%s: no answer: %v", method, w.out.Err())
	return nil
}

const newMeta = `{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`

func initParams(version string) string {
	return fmt.Sprintf(`{"protocolVersion":%q,"capabilities":{},"clientInfo":{"name":"t","version":"1"}}`, version)
}

// TestEachRevisionIsServed, and an initialize that comes twice, or behind a discover, is answered.
func TestEachRevisionIsServed(t *testing.T) {
	t.Parallel()
	home, err := sandbox.OpenHome(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	tools := func(w *wire, id int, params string) {
		t.Helper()
		if got, _ := w.ask(id, "tools/list", params)["tools"].([]any); len(got) != 12 {
			t.Errorf("%d tools", len(got))
		}
	}
	for _, version := range handshakeVersions {
		for _, discover := range []bool{false, true} {
			w := newWire(t, home) // several at once on one state directory
			if discover {
				w.ask(1, "server/discover", newMeta+"}")
			}
			for id := 2; id < 4; id++ {
				got := w.ask(id, "initialize", initParams(version))
				if got["protocolVersion"] != version || !strings.Contains(fmt.Sprint(got["capabilities"]), "tools") || got["serverInfo"] == nil || got["instructions"] == nil {
					t.Errorf("%s, discover %v, initialize %d: %v", version, discover, id, got)
				}
			}
			w.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
			tools(w, 5, "{}")
		}
	}
	w := newWire(t, home)
	tools(w, 1, newMeta+"}") // stateless
	got := w.ask(2, "tools/call", newMeta+`,"name":"sandbox_list","arguments":{}}`)
	if got["isError"] == true || !strings.Contains(fmt.Sprint(got["content"]), "max_sandboxes") {
		t.Errorf("a call without a session: %v", got)
	}
	if got := newWire(t, home).ask(1, "initialize", initParams("1999-01-01")); got["protocolVersion"] != handshakeVersions[0] {
		t.Errorf("an unknown revision: %v", got)
	}
}

// TestRequestsBeforeTheEndAreAnswered, and a server that starts and ends logs nothing. A call that goes on ends with its
// client.
func TestRequestsBeforeTheEndAreAnswered(t *testing.T) {
	t.Parallel()
	home, err := sandbox.OpenHome(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		var log bytes.Buffer
		in := io.NopCloser(strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":` + initParams("2025-06-18") + "}\n" + `{"jsonrpc":"2.0","id":2,"method":"ping"}` + "\n"))
		outR, outW := io.Pipe()
		go func() {
			_ = Serve(t.Context(), Options{Home: home}, "test", in, outW, slog.New(slog.NewTextHandler(&log, nil)))
			_ = outW.Close()
		}()
		out, err := io.ReadAll(outR)
		if err != nil || !strings.Contains(string(out), "serverInfo") || !strings.Contains(string(out), `"id":2`) {
			t.Fatalf("answered %q, %v", out, err)
		}
		if log.Len() > 0 {
			t.Fatalf("logged: %s", log.String())
		}
	}
}

// TestServersEndWithInputOrContext.
func TestServersEndWithInputOrContext(t *testing.T) {
	t.Parallel()
	home, err := sandbox.OpenHome(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	log := quiet
	_, w := io.Pipe()
	if err := Serve(t.Context(), Options{Home: home}, "test", io.NopCloser(strings.NewReader("")), w, log); err != nil {
		t.Errorf("end of input: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r, _ := io.Pipe()
	if err := Serve(ctx, Options{Home: home}, "test", r, w, log); err != nil {
		t.Errorf("end of context: %v", err)
	}
}
