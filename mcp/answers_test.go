package mcp

import (
	"bytes"
	"encoding/base64"
	"encoding/gob"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// discard is a client that reads all.
type discard struct{ io.Writer }

func (discard) Write(b []byte) (int, error) { return len(b), nil }
func (discard) Close() error                { return nil }

// oddParams are parameters that fit hardly any method.
func oddParams() []string {
	const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":`
	long := strings.Repeat("<", 1<<16)
	all := []string{
		"", `null`, `[]`, `{}`, `"x"`, `7`, `{"_meta":null}`, `{"_meta":[]}`, `{"_meta":{"progressToken":{}}}`, `{"_meta":{"progressToken":null}}`,
		`{"name":null}`, `{"name":"sandbox_list","arguments":null}`, `{"name":"sandbox_list","arguments":"x"}`, `{"name":"sandbox_list","arguments":[]}`,
		`{"name":"sandbox_list","_meta":{"progressToken":"` + long + `"}}`,
		`{"name":"sandbox_list","requestState":"` + long + `","inputResponses":{"a":null}}`, `{"name":"sandbox_list","requestState":7}`, `{"name":"sandbox_list","inputResponses":[]}`,
		`{"name":"write_policy","arguments":{"task":null}}`, `{"name":"write_policy","arguments":[]}`, `{"name":"try_untrusted_code"}`,
		`{"uri":null}`, `{"uri":"` + long + `"}`, `{"uri":"\u0001\ud83d\ude00\u2028"}`, `{"uri":"file:///etc/passwd"}`, `{"level":"` + long + `"}`,
		`{"ref":{"type":"ref/prompt","name":"x"},"argument":{"name":"x","value":"x"}}`, `{"ref":null,"argument":null}`, `{"ref":{"type":"ref/resource","uri":"x"},"argument":{"name":"a"}}`,
		`{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["` + long + `"]}}`, `{"notifications":null}`,
		`{"protocolVersion":null}`, `{"protocolVersion":"2025-06-18","capabilities":null,"clientInfo":null}`, `{"protocolVersion":"` + long + `","capabilities":{"roots":null},"clientInfo":{"icons":[null]}}`,
	}
	for _, cursor := range []string{"x", "AAAA", long, base64.URLEncoding.EncodeToString([]byte{0xf8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})} {
		all = append(all, `{"cursor":"`+cursor+`"}`)
	}
	for _, more := range []string{
		`"2026-07-28"}`, `"2026-07-28","io.modelcontextprotocol/clientCapabilities":null}`, `"2026-07-28","io.modelcontextprotocol/clientCapabilities":[]}`, `"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"roots":null}}`,
		`"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":null}`, `"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":7}`,
		`"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/logLevel":[]}`, `"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`,
		`"9999","io.modelcontextprotocol/clientCapabilities":{}}`, `"9` + long + `","io.modelcontextprotocol/clientCapabilities":{}}`, `7}`,
	} {
		all = append(all, `{`+meta+more+`}`, `{"name":"sandbox_list",`+meta+more+`}`)
	}
	return all
}

// TestI12_OddParametersAreAnswered: each method of the protocol, those that this server doesn't have too, with parameters
// of any shape. Each call has one bounded answer, and the next one is answered. The twin is go-sdk alone, whose answer to
// one of them is no JSON, with which it ends.
func TestI12_OddParametersAreAnswered(t *testing.T) {
	t.Parallel()
	l := onLine(t, false, time.Hour)
	all := append([]string{
		"resources/list", "resources/templates/list", "resources/read", "resources/subscribe", "resources/unsubscribe", "subscriptions/listen", "completion/complete", "logging/setLevel",
		"notifications/initialized", "notifications/cancelled", "notifications/progress", "notifications/roots/list_changed", "sampling/createMessage", "roots/list", "elicitation/create", "tasks/list", "Tools/List", "rpc.x",
	}, methods...)
	n := 0
	for _, method := range all {
		for _, params := range oddParams() {
			n++
			message := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q`, n, method)
			if params != "" {
				message += `,"params":` + params
			}
			go l.put(t, message+"}")
			r := l.answer(t)
			if string(r.ID) != fmt.Sprint(n) || len(l.out.Bytes()) > outputBudget {
				t.Errorf("%.200s: an answer of %d bytes: %.300s", message, len(l.out.Bytes()), l.out.Text())
			}
			if r.Error != nil && len(l.out.Bytes()) > 4*maxFault {
				t.Errorf("%.200s: an error of %d bytes: %.300s", message, len(l.out.Bytes()), l.out.Text())
			}
		}
	}
	alone := sdk.NewServer(&sdk.Implementation{Name: "alone", Version: "1"}, nil)
	in, out := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- alone.Run(t.Context(), &sdk.IOTransport{Reader: in, Writer: discard{}})
		_ = in.Close()
	}()
	go func() {
		_, _ = fmt.Fprintln(out, `{"jsonrpc":"2.0","id":"init","method":"initialize","params":`+initParams("2025-06-18")+"}")
		_, _ = fmt.Fprintln(out, `{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"\u0001"}}`)
	}()
	if err := <-ended; err == nil {
		t.Error("go-sdk answers this by itself: are the bounds on errors needed?")
	}
}

// TestI11_CursorsAreNotDecoded: go-sdk has them as encoding/gob, which is made for what its own program wrote. The twin is
// go-sdk alone, which takes one of its own form.
func TestI11_CursorsAreNotDecoded(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(struct{ LastUID string }{"a"}); err != nil {
		t.Fatal(err)
	}
	cursor := base64.URLEncoding.EncodeToString(b.Bytes())
	p := serve(t, nil)
	if _, err := p.client.ListTools(t.Context(), &sdk.ListToolsParams{Cursor: cursor}); err == nil || !strings.Contains(err.Error(), "leave it out") {
		t.Errorf("tools: %v", err)
	}
	if _, err := p.client.ListPrompts(t.Context(), &sdk.ListPromptsParams{Cursor: cursor}); err == nil || !strings.Contains(err.Error(), "leave it out") {
		t.Errorf("prompts: %v", err)
	}
	bare := sdk.NewServer(&sdk.Implementation{Name: "bare", Version: "1"}, nil)
	s, c := sdk.NewInMemoryTransports()
	session, err := bare.Connect(t.Context(), s, nil)
	if err != nil {
		t.Fatal(err)
	}
	client, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close(); _ = session.Wait() })
	bare.AddTool(&sdk.Tool{Name: "b", InputSchema: map[string]any{"type": "object"}}, nil)
	if all, err := client.ListTools(t.Context(), &sdk.ListToolsParams{Cursor: cursor}); err != nil || len(all.Tools) != 1 {
		t.Errorf("go-sdk takes no cursor: is the refusal needed? %v", err)
	}
}
