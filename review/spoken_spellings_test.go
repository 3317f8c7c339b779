package review_test

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode/utf16"

	"golang.org/x/net/http2"

	"github.com/msb-project/msb/internal/pcapgen"
)

func placeholdersInPieces(s *session) {
	web := s.site("good.example", goodSite, nil)
	p, q := s.token(), s.second()
	k := s.tls("good.example")
	inHeader := head("good.example", "GET /repos/records", s.with())
	cut := strings.Index(inHeader, p) + len(p)/2
	k.say(inHeader[:cut]) // a record each
	k.say(inHeader[cut:])
	k.answer("a header over two records").is(http.StatusOK, "hello")
	whole := posted(`{"key":"`+q+`"}`, "Content-Type: application/json")
	cut = strings.Index(whole, q) + len(q)/2
	k.say(whole[:cut])
	k.say(whole[cut:])
	k.answer("a body over two writes").is(http.StatusOK, "hello")
	chunk := func(b string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(b), b) }
	k = s.tls("good.example")
	k.say(head("good.example", "POST /repos/chunks", "Transfer-Encoding: chunked") + chunk(q[:9]))
	k.say(chunk(q[9:]) + "0\r\n\r\n")
	k.answer("a body over two chunks").is(http.StatusOK, "hello")
	k = s.tls("good.example")
	k.say(head("good.example", "POST /repos/forbidden", "Transfer-Encoding: chunked") + chunk(p[:9]) + chunk(p[9:]) + "0\r\n\r\n")
	k.answer("the other secret over two chunks").violates("secret_place", "TOKEN")
	s.piecesInFrames(p, q)
	all := web.whole("GET /repos/records", "POST /repos/a", "POST /repos/chunks", "GET /repos/frames", "POST /repos/data")
	for i, want := range []struct{ credentials, body string }{
		{bearer, ""}, {"", `{"key":"` + pcapgen.SecondValue + `"}`}, {"", pcapgen.SecondValue}, {bearer, ""}, {"", pcapgen.SecondValue},
	} {
		if got := all[i]; got.credentials() != want.credentials || got.Body != want.body {
			s.t.Errorf("the server got %+v, want %q", got, want)
		}
	}
}

// piecesInFrames is the part over HTTP/2: p may stand in a header, q in a body.
func (s *session) piecesInFrames(p, q string) {
	s.t.Helper()
	h := s.h2("good.example")
	block := h.encode(h2get("good.example", "/repos/frames", "authorization", "Bearer "+p))
	cut := len(block) - len(p)/2
	h.must(h.frames.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block[:cut], EndStream: true}))
	h.must(h.frames.WriteContinuation(1, true, block[cut:]))
	h.answer(1, "a header over two frames").is(http.StatusOK, "hello")
	for i, text := range []string{q, p} {
		stream := uint32(3 + 2*i)
		h.request(stream, false, pairs(":method", "POST", ":scheme", "https", ":authority", "good.example", ":path", "/repos/data", "content-type", "text/plain"))
		h.must(h.frames.WriteData(stream, false, []byte(text[:9])))
		h.must(h.frames.WriteData(stream, true, []byte(text[9:])))
	}
	h.answer(3, "a body over two frames").is(http.StatusOK, "hello")
	h.answer(5, "the other secret over two frames").violates("secret_place", "TOKEN")
}

// spellings are forms of text that some server decodes.
func spellings(text string) map[string]string {
	var percent, html, utf16le strings.Builder
	for _, c := range []byte(text) {
		_, _ = fmt.Fprintf(&percent, "%%%02x", c)
		_, _ = fmt.Fprintf(&html, "&#%d;", c)
	}
	for _, u := range utf16.Encode([]rune(text)) {
		utf16le.WriteByte(byte(u))
		utf16le.WriteByte(byte(u >> 8))
	}
	all := map[string]string{
		"percent": percent.String(), "HTML": html.String(), "UTF-16": utf16le.String(), "hexadecimal": hex.EncodeToString([]byte(text)),
		"JSON": fmt.Sprintf(`\u%04x%s`, text[0], text[1:]), "capitals": strings.ToUpper(text),
	}
	for before := range 3 { // base64 has three forms, by where the text begins
		all[fmt.Sprintf("base64 behind %d", before)] = base64.StdEncoding.EncodeToString([]byte("user:"[:before] + text + ":x"))
	}
	return all
}

func placeholdersInOtherSpellings(s *session) {
	web := s.site("good.example", goodSite, nil)
	k, h := s.tls("good.example"), s.h2("good.example")
	stream := uint32(1)
	for what, text := range spellings(s.token()) {
		h.request(stream, false, pairs(":method", "POST", ":scheme", "https", ":authority", "good.example", ":path", "/repos/a", "content-type", "text/plain"))
		h.must(h.frames.WriteData(stream, true, []byte("text "+text+" text")))
		h.answer(stream, what+" in a body").violates("secret_place", "TOKEN")
		stream += 2
		if what == "UTF-16" {
			continue // no field may hold its zeros
		}
		k.ask("good.example", "GET /repos/a", "X-Note: "+text).violates("secret_place", "TOKEN")
	}
	web.whole()
	reversed := []byte(s.token())
	slices.Reverse(reversed)
	k.ask("good.example", "GET /repos/a", "X-Note: "+string(reversed)).is(http.StatusOK, "hello")
	if got := web.whole("GET /repos/a")[0].Header.Get("X-Note"); got != string(reversed) {
		s.t.Errorf("the reversed placeholder arrives as %q", got)
	}
}
