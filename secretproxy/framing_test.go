package secretproxy

import (
	"errors"
	"strings"
	"testing"
)

// TestI9_FramingIsReadOneWay has the bytes of connections, and what the check that stands before net/http makes of them:
// how many requests, and why it refuses what follows. It is the same in whatever pieces they come.
func TestI9_FramingIsReadOneWay(t *testing.T) {
	t.Parallel()
	const (
		host    = "Host: a.example\r\n"
		get     = "GET / HTTP/1.1\r\n" + host + "\r\n"
		post    = "POST / HTTP/1.1\r\n" + host
		chunked = post + "Transfer-Encoding: chunked\r\n\r\n"
	)
	chunk := func(line string) string { return chunked + line + "\r\nabc\r\n0\r\n\r\n" + get }
	long := func(n int) string { return strings.Repeat("x", n) }
	for name, tc := range map[string]struct {
		raw   string
		heads int
		code  string // "" for none
		over  bool
	}{
		"nothing":                       {"", 0, "", false},
		"requests without a body":       {get + get, 2, "", false},
		"half a head":                   {get + get[:20], 1, "", false},
		"a body that looks like a head": {post + "Content-Length: 51\r\n\r\n" + get + "12345678901234" + get, 2, "", false},
		"an empty body":                 {post + "Content-Length: 0\r\n\r\n" + get, 2, "", false},
		"a body that goes on":           {post + "Content-Length: 999999999999999999\r\n\r\n" + get, 1, "", false},
		"a length of 19 digits":         {post + "Content-Length: 0000000000000000000\r\n\r\n" + get, 0, "content_length", true},
		"a length and another":          {post + "Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc", 0, "length", true},
		"chunked twice":                 {post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", 0, "length", true},
		"a length and chunked":          {post + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", 0, "length", true},
		"chunked in HTTP/1.0":           {"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 0, "transfer_encoding", true},
		"no host in HTTP/1.0":           {"GET / HTTP/1.0\r\n\r\n" + get, 2, "", false},
		"two hosts in HTTP/1.0":         {"GET / HTTP/1.0\r\n" + host + host + "\r\n", 0, "host", true},
		"no host":                       {"GET / HTTP/1.1\r\nX: y\r\n\r\n", 0, "host", true},
		"an invalid host":               {"GET / HTTP/1.1\r\nHost: a{b\r\n\r\n", 0, "host", true},
		"the star":                      {"OPTIONS * HTTP/1.1\r\n" + host + "\r\n" + get, 2, "", false},
		"the star of another method":    {"GET * HTTP/1.1\r\n" + host + "\r\n" + get, 0, "absolute_form", true},
		"CONNECT is the handler's":      {"CONNECT a.example:443 HTTP/1.1\r\n" + host + "\r\n", 1, "", false},
		"TRACE is the handler's":        {"TRACE x HTTP/1.1\r\n" + host + "\r\n", 1, "", false},
		"expects to go on":              {"GET / HTTP/1.1\r\n" + host + "Expect: 100-Continue\r\n\r\n" + get, 2, "", false},
		"expects something else":        {"GET / HTTP/1.1\r\n" + host + "Expect: 100-continue, x\r\n\r\n" + get, 0, "expect", true},
		"an upgrade":                    {"GET / HTTP/1.1\r\n" + host + "Upgrade: websocket\r\n\r\n" + get, 1, "", true},
		"an upgrade with a body":        {post + "Upgrade: x\r\nContent-Length: 3\r\n\r\nabc" + get, 1, "", true},
		"an upgrade in chunks":          {post + "Upgrade: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n" + get, 1, "", true},
		"chunks":                        {chunk("3"), 2, "", false},
		"chunks and trailers":           {chunked + "3\r\nabc\r\n2\r\nde\r\n0\r\nX: y\r\nZ:\r\n\r\n" + get, 2, "", false},
		"an invalid trailer":            {chunked + "0\r\nX y\r\n\r\n" + get, 1, "", true},
		"a size of 15 digits":           {chunk("000000000000003"), 2, "", false},
		"a size of 16 digits":           {chunk("0000000000000003"), 1, "chunk", true},
		"a size with spaces behind":     {chunk("3 \t;x=y"), 2, "", false},
		"a size with a space before":    {chunk(" 3"), 1, "chunk", true},
		"a size with a sign":            {chunk("+3"), 1, "chunk", true},
		"a size of another base":        {chunk("0x3"), 1, "chunk", true},
		"a size with an underscore":     {chunk("0_3"), 1, "chunk", true},
		"no size":                       {chunk(""), 1, "chunk", true},
		"no size, an extension":         {chunk(";x"), 1, "chunk", true},
		"an extension with a tab":       {chunk("3;a\tb\xe4 c"), 2, "", false},
		"an extension with a control":   {chunk("3;a\x1fb"), 1, "", true},
		"an extension with DEL":         {chunk("3;a\x7fb"), 1, "", true},
		"a chunk that is longer":        {chunked + "3\r\nabcd\r\n0\r\n\r\n" + get, 1, "chunk", true},
		"a chunk that is shorter":       {chunked + "3\r\nab\r\n0\r\n\r\n" + get, 1, "", true},
		"a size line of 256 bytes":      {chunk("3;" + long(253)), 2, "", false},
		"a size line of a byte more":    {chunk("3;" + long(254)), 1, "head_too_large", true},
		"trailers of 60 KiB":            {chunked + "0\r\n" + strings.Repeat("X: "+long(1017)+"\r\n", 60) + "\r\n" + get, 2, "", false},
		"trailers of 66 KiB":            {chunked + "0\r\n" + strings.Repeat("X: "+long(1017)+"\r\n", 66) + "\r\n" + get, 1, "head_too_large", true},
		"chunks of 200 KiB":             {chunked + strings.Repeat("1000\r\n"+long(4096)+"\r\n", 50) + "0\r\n\r\n" + get, 2, "", false},
		"a field of 70 KiB":             {"GET / HTTP/1.1\r\n" + host + "X: " + long(70<<10) + "\r\n\r\n", 0, "head_too_large", true},
	} {
		for _, size := range []int{1, 7, len(tc.raw)} {
			var r Replay
			var err error
			heads := 0
			for rest := tc.raw; rest != "" && err == nil; {
				piece := rest[:min(size, len(rest))]
				rest = rest[len(piece):]
				err = r.Feed([]byte(piece), func([]byte) bool { heads++; return true })
			}
			var fault *headError
			_ = errors.As(err, &fault)
			if heads != tc.heads || (err != nil) != (tc.code != "" || tc.over && !strings.Contains(name, "upgrade")) || tc.code != "" && fault.code != tc.code || r.Over() != tc.over {
				t.Errorf("%s, %d bytes at once: %d requests, %v (%+v), over %t; want %+v", name, size, heads, err, fault, r.Over(), tc.heads)
			}
			if err == nil && strings.HasSuffix(tc.raw, get) && r.Size() > keptHead+maxHeadBytes/32 {
				t.Errorf("%s: %d bytes are held of no request", name, r.Size())
			}
		}
	}
}

// TestReplaySaysWhatNetHTTPRefused: a request line that can't be read is answered before the fields come.
func TestReplaySaysWhatNetHTTPRefused(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]bool{
		"":                                  false,
		"GET / HTTP/1.1\r\n":                false,
		"GET /%zz HTTP/1.1\r\n":             true,
		"GET / HTTP/1.1\r\nHost: a\r\n\r\n": false,
	} {
		var r Replay
		if err := r.Feed([]byte(raw), func([]byte) bool { return true }); err != nil {
			t.Fatal(err)
		}
		if got := r.Refused(false); got != want {
			t.Errorf("%q is refused: %t", raw, got)
		}
		_ = r.Feed([]byte("GET *x"), func([]byte) bool { return true })
		if err := r.Feed([]byte("\x00\r\n"), func([]byte) bool { return true }); err == nil || r.Refused(false) || !r.Over() {
			t.Errorf("%q: refused %t, over %t after %v", raw, r.Refused(false), r.Over(), err)
		}
	}
	for raw, want := range map[string]bool{"": false, "GET": false, "GET ": true, "GET / HTTP/1.1\r\nHost: a": true, "GET / HTTP/1.1\r\nHost: a\r\n\r\n": false} {
		var r Replay
		if err := r.Feed([]byte(raw), func([]byte) bool { return true }); err != nil || r.Refused(true) != want {
			t.Errorf("%q of a client that has closed its side is refused: %t, %v", raw, !want, err)
		}
	}
	var r Replay
	heads := 0
	raw := []byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	for range 2 {
		if err := r.Feed(append(raw, raw...), func([]byte) bool { heads++; return false }); err != nil || heads != 1 || !r.Over() {
			t.Errorf("after the last request: %d, %v", heads, err)
		}
	}
}
