package review_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/internal/pcapgen"
)

// h2Scripts are attacks inside HTTP/2.
func h2Scripts() map[string]script {
	return map[string]script{
		"spoken-h2-coalescing":         oneNameForAConnection,
		"spoken-h2-continuation-flood": continuationFlood,
		"spoken-h2-rapid-reset":        rapidReset,
		"spoken-h2-settings-flood":     settingsFlood,
		"spoken-h2-hpack":              hpackBombs,
		"spoken-h2-never-indexed":      neverIndexed,
		"spoken-h2-pseudo-headers":     pseudoHeaders,
		"spoken-h2-connection-headers": connectionHeaders,
	}
}

func oneNameForAConnection(s *session) {
	web := s.siteWith("good.example", goodSite, s.CA.Certificate("good.example", "other.example"), nil)
	k := s.h2("good.example")
	k.ask(1, h2get("good.example", "/repos/a", "authorization", "Bearer "+s.token())).is(http.StatusOK, "hello from good.example")
	s.addr("other.example")
	k.ask(3, h2get("other.example", "/b", "authorization", "Bearer "+s.token())).refused(http.StatusMisdirectedRequest, "host_mismatch")
	k.ask(5, h2get("evil.example", "/repos/c")).refused(http.StatusMisdirectedRequest, "host_mismatch")
	k.ask(7, h2get("GOOD.example:443", "/repos/d")).is(http.StatusOK, "hello from good.example")
	s.h2("other.example").ask(1, h2get("other.example", "/b")).is(http.StatusOK, "hello from good.example")
	all := web.got("GET /repos/a", "GET /repos/d", "GET other.example/b")
	if all[0].credentials() != "Bearer "+pcapgen.SecretValue {
		s.t.Errorf("the right server got %q", all[0].credentials())
	}
	s.dialled("tcp " + goodSite)
}

// zeros are compressed best: five bits each.
func zeros(n int) string { return strings.Repeat("0", n) }

func continuationFlood(s *session) {
	const (
		bound = 64 << 10 // of a head's fields
		piece = 4 << 10
	)
	web := s.site("good.example", goodSite, nil)
	k := s.h2("good.example")
	head := k.encode(h2get("good.example", "/repos/a", "authorization", "Bearer "+s.token()))
	k.must(k.frames.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: head, EndStream: true}))
	for sent := 0; sent <= bound+piece; sent += piece {
		more := k.encode([]hpack.HeaderField{{Name: "x-fill", Value: zeros(piece), Sensitive: true}})
		k.must(k.frames.WriteContinuation(1, false, more))
	}
	k.ended(http2.ErrCodeProtocol, "a head without end")
	web.got()
	s.dialled()
}

func rapidReset(s *session) {
	const (
		streams = 2000
		atOnce  = 100 // what the gateway offers on a connection
		shown   = 24
	)
	var now, most atomic.Int32
	began := make(chan struct{}, streams)
	web := s.site("good.example", goodSite, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/repos/done" {
			return
		}
		n := now.Add(1)
		defer now.Add(-1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		began <- struct{}{}
		<-r.Context().Done()
	})
	k := s.h2("good.example")
	for i := range uint32(streams) {
		stream := 2*i + 1
		head := http2.HeadersFrameParam{StreamID: stream, BlockFragment: k.encode(h2get("good.example", "/repos/a")), EndStream: true, EndHeaders: true}
		if k.frames.WriteHeaders(head) != nil {
			break // the gateway has had enough
		}
		if i == 0 {
			<-began // so that one request is known to be given up
		}
		if k.frames.WriteRSTStream(stream, http2.ErrCodeCancel) != nil {
			break
		}
		if i == shown {
			s.Audit.Wait(s.t, audit.HTTPRequest, 1)
			for range 20 { // what is judged now waits for a packet, without which a capture that ends counts it as lost
				time.Sleep(5 * time.Millisecond)
				k.ping()
			}
			s.enough()
		}
	}
	s.h2("good.example").ask(1, h2get("good.example", "/repos/done")).is(http.StatusOK, "")
	_ = k.Close()
	if n := most.Load(); n > 2*atOnce {
		s.t.Errorf("the server worked on %d requests at a time, want %d at most of each connection", n, atOnce)
	}
	for _, r := range web.all() {
		if r.Path != "/repos/a" && r.Path != "/repos/done" {
			s.t.Errorf("the server was asked for %s", r.Path)
		}
	}
}

func settingsFlood(s *session) {
	const (
		rounds = 6000
		shown  = 24
	)
	s.site("good.example", goodSite, nil)
	before := live()
	k := s.h2("good.example")
	k.ask(1, h2get("good.example", "/repos/a")).is(http.StatusOK, "hello")
	for i := range rounds {
		if k.frames.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 16}) != nil ||
			k.frames.WritePing(false, [8]byte{1}) != nil {
			break
		}
		if i == shown {
			k.ping()
			s.enough()
		}
	}
	if grown := live() - before; grown > maxBusy {
		s.t.Errorf("%d bytes more are live after the flood", grown)
	}
	_ = k.Close()
	s.h2("good.example").ask(1, h2get("good.example", "/repos/b")).is(http.StatusOK, "hello")
}

func hpackBombs(s *session) {
	web := s.site("good.example", goodSite, nil)
	k := s.h2("good.example")
	bomb := append(h2get("good.example", "/repos/a"), pairs("x-fill", zeros(3900))...)
	for range 200 {
		bomb = append(bomb, bomb[4])
	}
	if a := k.ask(1, bomb); a.Status != http.StatusRequestHeaderFieldsTooLarge {
		s.t.Errorf("800 KB of fields: status %d: %s", a.Status, a.Body)
	}
	const gigabyte = "\x3f\xe1\xff\xff\xff\x03" // a size update (RFC 7541, section 6.3)
	for what, block := range map[string]string{"a table of a gigabyte": gigabyte, "an entry that isn't there": "\xff\x80\x01"} {
		k := s.h2("good.example")
		head := append([]byte(block), k.encode(h2get("good.example", "/repos/a", "authorization", "Bearer "+s.token()))...)
		k.must(k.frames.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: head, EndStream: true, EndHeaders: true}))
		k.ended(http2.ErrCodeCompression, what)
	}
	web.got()
	s.dialled()
	k = s.h2("good.example", http2.Setting{ID: http2.SettingHeaderTableSize, Val: 1<<32 - 1})
	k.ask(1, h2get("good.example", "/repos/a")).is(http.StatusOK, "hello")
}

func neverIndexed(s *session) {
	web := s.site("good.example", goodSite, nil)
	k := s.h2("good.example")
	forms := []bool{true, false, false} // never indexed, put into the table, an index of it
	for i, never := range forms {
		fields := append(h2get("good.example", "/repos/a"), hpack.HeaderField{Name: "authorization", Value: "Bearer " + s.token(), Sensitive: never})
		k.ask(uint32(4*i+1), fields).is(http.StatusOK, "hello")
		fields = append(h2get("good.example", "/repos/b"), hpack.HeaderField{Name: "x-note", Value: s.token(), Sensitive: never})
		k.ask(uint32(4*i+3), fields).refused(http.StatusForbidden, "secret_place")
	}
	for _, r := range web.got("GET /repos/a", "GET /repos/a", "GET /repos/a") {
		if r.credentials() != "Bearer "+pcapgen.SecretValue {
			s.t.Errorf("the right server got %q", r.credentials())
		}
	}
}

func pseudoHeaders(s *session) {
	web := s.site("good.example", goodSite, nil)
	k := s.h2("good.example")
	with := pairs("authorization", "Bearer "+s.token())
	stream := uint32(1)
	for what, fields := range map[string][]hpack.HeaderField{
		"two paths":       append(h2get("good.example", "/repos/a", ":path", "/admin"), with...),
		"two authorities": append(h2get("good.example", "/repos/a", ":authority", "evil.example"), with...),
		"two methods":     append(h2get("good.example", "/repos/a", ":method", "DELETE"), with...),
		"a late path":     append(pairs(":method", "GET", ":scheme", "https", ":authority", "good.example", "x-a", "b", ":path", "/repos/a"), with...),
		"no path":         append(pairs(":method", "GET", ":scheme", "https", ":authority", "good.example"), with...),
		"an empty path":   append(h2get("good.example", ""), with...),
		"an invented one": append(h2get("good.example", "/repos/a", ":protocol2", "x"), with...),
		"a status":        append(h2get("good.example", "/repos/a", ":status", "200"), with...),
		"no method":       append(pairs(":scheme", "https", ":authority", "good.example", ":path", "/repos/a"), with...),
	} {
		k.request(stream, true, fields)
		k.wasReset(stream, http2.ErrCodeProtocol, what)
		stream += 2
	}
	k.ask(stream, append(h2get("good.example", "/repos/a", "host", "evil.example"), with...)).refused(http.StatusBadRequest, "host")
	web.got()
	s.dialled()
	k.ask(stream+2, h2get("good.example", "/repos/a")).is(http.StatusOK, "hello")
}

func connectionHeaders(s *session) {
	web := s.site("good.example", goodSite, nil)
	k := s.h2("good.example")
	stream := uint32(1)
	for _, field := range [][2]string{
		{"connection", "authorization"}, {"transfer-encoding", "chunked"}, {"upgrade", "h2c"}, {"keep-alive", "1"},
		{"proxy-connection", "keep-alive"}, {"te", "gzip"},
		{"x-a", "b\r\nhost: evil.example"}, {"X-Upper", "1"}, {"x a", "1"},
	} {
		k.request(stream, true, h2get("good.example", "/repos/a", "authorization", "Bearer "+s.token(), field[0], field[1]))
		if a := k.answer(stream, field[0]); a.Status != 0 && a.Status != http.StatusBadRequest {
			s.t.Errorf("%q: status %d: %s", field, a.Status, a.Body)
		}
		stream += 2
	}
	web.got()
	s.dialled()
	k.ask(stream, h2get("good.example", "/repos/a", "te", "trailers")).is(http.StatusOK, "hello")
}
