package secretproxy

import (
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/websocket"
)

// TestWebSocketOfAnotherAuthor has a client and a server of another author's speak: the value is put into the
// handshake and into messages, and taken out of what comes back.
func TestWebSocketOfAnotherAuthor(t *testing.T) {
	t.Parallel()
	const rounds = 3
	large := strings.Repeat("x", 100_000)
	got := make(chan string, 2*rounds)
	server := websocket.Server{Handler: func(ws *websocket.Conn) {
		for {
			var text string
			if websocket.Message.Receive(ws, &text) != nil {
				close(got)
				return
			}
			got <- text
			if err := websocket.Message.Send(ws, realValue+text); err != nil {
				t.Error(err)
			}
		}
	}}
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != realValue {
			http.Error(rw, "no", http.StatusUnauthorized)
			return
		}
		server.ServeHTTP(rw, r)
	}, withSecret(socketSecret(t)))
	cfg, err := websocket.NewConfig("wss://"+apiHost+"/chat", "https://"+apiHost)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Header.Set("Authorization", w.placeholder())
	ws, err := websocket.NewClient(cfg, w.tlsConn(apiHost, apiAddr, "http/1.1"))
	if err != nil {
		t.Fatal(err)
	}
	for range rounds {
		for _, sent := range []string{w.placeholder(), large} {
			if err := websocket.Message.Send(ws, sent); err != nil {
				t.Fatal(err)
			}
			if text, want := <-got, strings.ReplaceAll(sent, w.placeholder(), realValue); text != want {
				t.Errorf("the server got %.80q, want %.80q", text, want)
			}
			var text string
			if err := websocket.Message.Receive(ws, &text); err != nil || text != w.placeholder()+sent {
				t.Errorf("the guest got %.80q, %v; want %.80q", text, err, w.placeholder()+sent)
			}
		}
	}
	_ = ws.Close()
	if text, open := <-got; open {
		t.Errorf("the server got %q after the guest's end", text)
	}
}
