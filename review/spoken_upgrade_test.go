package review_test

import (
	"io"
	"net/http"

	"golang.org/x/net/http2"

	"github.com/msb-project/msb/internal/pcapgen"
)

// upgradeScripts are attacks by a change of protocol.
func upgradeScripts() map[string]script {
	return map[string]script{
		"spoken-http-h2c":            upgradeToHTTP2,
		"spoken-http-behind-upgrade": requestsBehindAnUpgrade,
		"spoken-http-websocket":      webSocket,
	}
}

func upgradeToHTTP2(s *session) {
	web := s.site("good.example", goodSite, nil)
	k := s.tls("good.example")
	k.say(head("good.example", "GET /repos/a", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__") + http2.ClientPreface)
	a := k.answer("h2c")
	a.is(http.StatusOK, "hello")
	k.ended("behind h2c")
	for _, r := range web.got("GET /repos/a") {
		if r.Header.Get("Upgrade")+r.Header.Get("Http2-Settings") != "" {
			s.t.Errorf("the server was offered an upgrade: %v", r.Header)
		}
	}
	k = s.tls("good.example")
	k.say(http2.ClientPreface)
	k.answer("HTTP/2 where HTTP/1.1 was agreed on").refused(http.StatusBadRequest, "request_line")
	k.ended("behind a preface")
}

func requestsBehindAnUpgrade(s *session) {
	web := s.site("good.example", goodSite, nil)
	upgrade := head("good.example", "GET /repos/a", "Connection: Upgrade", "Upgrade: websocket", s.with())
	for what, behind := range map[string]string{
		"an allowed request":   head("good.example", "GET /repos/b", s.with()),
		"a denied request":     head("good.example", "GET /admin", s.with()),
		"a request in bare LF": "GET /repos/c HTTP/1.1\nHost: good.example\n" + s.with() + "\n\n",
	} {
		k := s.tls("good.example")
		k.say(upgrade + behind)
		k.answer("an upgrade that isn't taken").is(http.StatusOK, "hello")
		k.ended(what + " behind an upgrade")
	}
	web.got("GET /repos/a", "GET /repos/a", "GET /repos/a")
}

func webSocket(s *session) {
	early := frame(true, "early")
	late := frame(true, "GET /admin HTTP/1.1\r\nHost: good.example\r\n\r\n")
	got := make(chan string, 1)
	web := s.site("good.example", goodSite, func(rw http.ResponseWriter, r *http.Request) {
		conn, buffered, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+r.Header.Get("Upgrade")+"\r\n\r\n")
		b := make([]byte, len(early)+len(late))
		_, _ = io.ReadFull(buffered, b)
		got <- string(b)
		_, _ = io.WriteString(conn, frame(false, "both"))
	})
	k := s.tls("good.example")
	k.say(head("good.example", "GET /repos/live", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", s.with()) + early)
	resp, err := http.ReadResponse(k.r, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		s.t.Fatalf("got %+v, %v; want 101", resp, err)
	}
	k.say(late)
	if sent := <-got; sent != early+late {
		s.t.Errorf("the server got %q, want what was sent, as it was", sent)
	}
	back := make([]byte, len(frame(false, "both")))
	if _, err := io.ReadFull(k.r, back); err != nil || string(back) != frame(false, "both") {
		s.t.Errorf("the guest got %q, %v", back, err)
	}
	if r := web.got("GET /repos/live")[0]; r.credentials() != "Bearer "+pcapgen.SecretValue {
		s.t.Errorf("the handshake had the credentials %q", r.credentials())
	}
}
