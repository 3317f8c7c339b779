package review_test

import (
	"bufio"
	"io"
	"net/http"
	"strings"
)

// framingScripts are attacks by where a request ends.
func framingScripts() map[string]script {
	return map[string]script{
		"spoken-http-lengths":      oddLengths,
		"spoken-http-chunked":      oddCodings,
		"spoken-http-chunk-tricks": chunkTricks,
		"spoken-http-trailers":     decidingTrailers,
	}
}

// second is a forbidden request that hides in what may be a body.
func second() string { return head("good.example", "GET /repos/evil") }

// unread asserts that a head is refused for that reason, that its connection ends, and that nothing is sent.
func (s *session) unread(reason, line string, fields ...string) {
	s.t.Helper()
	k := s.tls("good.example")
	k.say(head("good.example", line, append(fields, s.with())...) + "0\r\n\r\n" + second())
	a := k.answer(strings.Join(fields, ", "))
	a.refused(http.StatusBadRequest, reason)
	k.ended(a.What)
}

func oddLengths(s *session) {
	web := s.site("good.example", goodSite, nil)
	for _, c := range []struct {
		reason string
		fields []string
	}{
		{"length", []string{"Content-Length: 5", "Content-Length: 5"}},
		{"length", []string{"Content-Length: 5", "Content-Length: 6"}},
		{"length", []string{"Content-Length: 5", "Transfer-Encoding: chunked"}},
		{"content_length", []string{"Content-Length: +5"}},
		{"content_length", []string{"Content-Length: 5, 5"}},
		{"content_length", []string{"Content-Length: 0x5"}},
		{"content_length", []string{"Content-Length: -1"}},
		{"content_length", []string{"Content-Length:"}},
		{"content_length", []string{"Content-Length: 18446744073709551621"}}, // 5 and 2^64
	} {
		s.unread(c.reason, "POST /repos/a", c.fields...)
	}
	web.got()
	s.dialled()
}

func oddCodings(s *session) {
	web := s.site("good.example", goodSite, nil)
	for _, c := range []struct {
		reason string
		fields []string
	}{
		{"transfer_encoding", []string{"Transfer-Encoding: chunkedx"}},
		{"transfer_encoding", []string{"Transfer-Encoding: chunked, chunked"}},
		{"transfer_encoding", []string{"Transfer-Encoding: gzip, chunked"}},
		{"transfer_encoding", []string{"Transfer-Encoding: identity"}},
		{"control_character", []string{"Transfer-Encoding: \x0bchunked"}},
		{"length", []string{"Transfer-Encoding: chunked", "Transfer-Encoding: chunked"}},
		{"field", []string{"Transfer-Encoding : chunked"}},
	} {
		s.unread(c.reason, "POST /repos/a", c.fields...)
	}
	k := s.tls("good.example")
	k.say("POST /repos/a HTTP/1.0\r\nHost: good.example\r\n" + s.with() + "\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + second())
	k.answer("chunked in HTTP/1.0").refused(http.StatusBadRequest, "transfer_encoding")
	web.got()
	s.dialled()
}

func chunkTricks(s *session) {
	web := s.site("good.example", goodSite, nil)
	for what, body := range map[string]string{
		"a line feed in an extension": "5;a\nGET /repos/evil HTTP/1.1\r\nabcde\r\n0\r\n\r\n",
		"a line feed behind a size":   "5\nabcde\r\n0\r\n\r\n",
		"a size in 0x":                "0x5\r\nabcde\r\n0\r\n\r\n",
		"a size with a sign":          "+5\r\nabcde\r\n0\r\n\r\n",
		"a chunk that is too long":    "3\r\nabcde" + second() + "0\r\n\r\n",
		"a size that overflows":       "10000000000000005\r\nabcde\r\n0\r\n\r\n",
	} {
		k := s.tls("good.example")
		k.say(head("good.example", "POST /repos/a", s.with(), "Transfer-Encoding: chunked") + body + second())
		all, _ := io.ReadAll(k.r) // until the gateway ends it
		resp, err := http.ReadResponse(bufio.NewReader(strings.NewReader(string(all))), nil)
		if err != nil || resp.StatusCode < http.StatusBadRequest || strings.Count(string(all), "HTTP/1.1 ") != 1 {
			s.t.Errorf("%s: %v: %.300q; want one refusal", what, err, all)
		}
	}
	for _, r := range web.all() {
		if r.Path != "/repos/a" {
			s.t.Errorf("the server got a second request: %s %s", r.Method, r.Path)
		}
	}
}

func decidingTrailers(s *session) {
	web := s.site("good.example", goodSite, nil)
	for _, trailer := range []string{"Host: evil.example", s.with(), "X-HTTP-Method-Override: DELETE", "X-Original-URL: /admin"} {
		name, _, _ := strings.Cut(trailer, ":")
		for _, announced := range []string{name, "X-A"} {
			k := s.tls("good.example")
			k.say(head("good.example", "POST /repos/a", "Transfer-Encoding: chunked", "Trailer: "+announced) +
				"3\r\nabc\r\n0\r\nX-A: 1\r\n" + trailer + "\r\n\r\n")
			k.answer(name+" announced as "+announced).refused(http.StatusBadRequest, "trailer")
		}
	}
	for _, r := range web.all() {
		for name := range r.Trailer {
			if name != "X-A" {
				s.t.Errorf("the server got the trailer %s: %q", name, r.Trailer[name])
			}
		}
	}
}
