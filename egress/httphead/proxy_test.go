package httphead_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/msb-project/msb/egress/httphead"
)

// TestI9_ProxyRequestsAreUnambiguous has requests to the explicit proxy that servers read differently, each beside one
// that all read alike: what is asked for, and the head that the server gets.
func TestI9_ProxyRequestsAreUnambiguous(t *testing.T) {
	t.Parallel()
	const line, end = " HTTP/1.1\r\n", "\r\n\r\n"
	for in, want := range map[string]string{
		"CONNECT a.example:443" + line + "\r\n":                                                   "a.example:443",
		"CONNECT A.Example:443" + line + "Host: a.example" + end:                                  "a.example:443",
		"CONNECT a.example:443" + line + "Host: a.example:443" + end:                              "a.example:443",
		"CONNECT a.example:443" + line + "Content-Length: 0" + end:                                "a.example:443",
		"CONNECT a.example:65535" + line + "\r\n":                                                 "a.example:65535",
		"CONNECT 192.0.2.1:22" + line + "Host: 192.0.2.1" + end:                                   "192.0.2.1:22",
		"CONNECT [2001:db8::1]:22" + line + "Host: [2001:db8::1]" + end:                           "[2001:db8::1]:22",
		"CONNECT a.example:443" + line + "X: " + strings.Repeat("y", 1<<10) + end:                 "a.example:443",
		"CONNECT a.example" + line + "\r\n":                                                       "has no port",
		"CONNECT a.example:" + line + "\r\n":                                                      "not HOST:PORT",
		"CONNECT :443" + line + "\r\n":                                                            "not HOST:PORT",
		"CONNECT a.example:0" + line + "\r\n":                                                     "has no port",
		"CONNECT a.example:65536" + line + "\r\n":                                                 "not a number",
		"CONNECT a.example:+443" + line + "\r\n":                                                  "not a number",
		"CONNECT a.example:443:443" + line + "\r\n":                                               "not a number",
		"CONNECT 127.1:443" + line + "\r\n":                                                       "no host name",
		"CONNECT 0x7f000001:443" + line + "\r\n":                                                  "no host name",
		"CONNECT ::1:443" + line + "\r\n":                                                         "not HOST:PORT",
		"CONNECT [::1:443" + line + "\r\n":                                                        "not HOST:PORT",
		"CONNECT [::1]443" + line + "\r\n":                                                        "not HOST:PORT",
		"CONNECT [::1]:" + line + "\r\n":                                                          "not HOST:PORT",
		"CONNECT [::1]" + line + "\r\n":                                                           "has no port",
		"CONNECT [fe80::1%25eth0]:443" + line + "\r\n":                                            "in brackets",
		"CONNECT [192.0.2.1]:443" + line + "\r\n":                                                 "in brackets",
		"CONNECT a.example:443" + line + "Host: b.example" + end:                                  "not its target",
		"CONNECT a.example:443" + line + "Host: a.example:80" + end:                               "not its target",
		"CONNECT a.example:443" + line + "Host: " + end:                                           "not its target",
		"CONNECT 192.0.2.1:443" + line + "Host: 192.0.2.2" + end:                                  "not its target",
		"CONNECT a.example:443" + line + "Host: a.example\r\nHost: a.example" + end:               "two Host",
		"CONNECT a.example:443" + line + "Content-Length: 1" + end:                                "no body",
		"CONNECT a.example:443" + line + "Transfer-Encoding: chunked" + end:                       "no body",
		"CONNECT a.example:443" + line + "Content-Length: 5\r\nContent-Length: 0" + end:           "no body",
		"CONNECT a.example:443" + line + "\r\nx":                                                  "bytes follow",
		"CONNECT a.example:443" + line + "X: y\nY: z" + end:                                       "carriage return",
		"connect a.example:443" + line + "\r\n":                                                   "not HTTP",
		"[" + line:                                                                                "not HTTP",
		"Z a.example:443" + line:                                                                  "incomplete",
		"CONNECT a.example:443":                                                                   "incomplete",
		"":                                                                                        "incomplete",
		"A" + strings.Repeat("a", httphead.MaxProxyBytes-1):                                       "incomplete",
		"A" + strings.Repeat("a", httphead.MaxProxyBytes):                                         "larger than",
		"GET http://a.example" + line + "X: " + strings.Repeat("y", httphead.MaxProxyBytes) + end: "larger than",

		"GET http://a.example/x?y" + line + "Host: a.example\r\nX: y" + end: "a.example:80 GET /x?y HTTP/1.1|Host: a.example|X: y",
		"GET HTTP://a.example:8080?y" + line + "\r\n":                       "a.example:8080 GET /?y HTTP/1.1|Host: a.example:8080",
		"GET http://a.example HTTP/1.0\r\n\r\n":                             "a.example:80 GET / HTTP/1.0|Host: a.example",
		"OPTIONS http://a.example" + line + "\r\n":                          "a.example:80 OPTIONS * HTTP/1.1|Host: a.example",
		"OPTIONS http://a.example/" + line + "\r\n":                         "a.example:80 OPTIONS / HTTP/1.1|Host: a.example",
		"OPTIONS http://a.example?" + line + "\r\n":                         "a.example:80 OPTIONS /? HTTP/1.1|Host: a.example",
		"PUT http://[::1]/" + line + "Content-Length: 1" + end + "x":        "[::1]:80 PUT / HTTP/1.1|Host: [::1]|Content-Length: 1",
		"GET http://a.example/" + line + "Proxy-Connection: x\r\nProxy-Authorization: x\r\nProxy-Authenticate: x\r\nKeep-Alive: x" + end: "a.example:80 GET / HTTP/1.1|Host: a.example",
		"GET http://a.example/" + line + "Host: b.example" + end:                                                                         "not its target's",
		"GET http://a.example/" + line + "Host: a.example:8080" + end:                                                                    "not its target's",
		"GET http://a.example/" + line + "Host: a.example:80" + end:                                                                      "a.example:80 GET / HTTP/1.1|Host: a.example",
		"GET http://u@a.example/" + line + "\r\n":                                                                                        "no host name",
		"GET http:///x" + line + "\r\n":                                                                                                  "not HOST:PORT",
		"GET https://a.example/" + line + "\r\n":                                                                                         "https goes by CONNECT",
		"GET http:/" + line + "\r\n":                                                                                                     "https goes by CONNECT",
		"GET /x" + line + "\r\n":                                                                                                         "https goes by CONNECT",
		"GET http://a.example/ HTTP/2.0\r\n\r\n":                                                                                         "HTTP/1.1 or HTTP/1.0",
		"GET http://a.example/#x" + line + "\r\n":                                                                                        "fragment",
	} {
		name := in[:min(len(in), 80)]
		r, err := httphead.ParseProxy([]byte(in))
		if err != nil {
			got := err.Error()
			if errors.Is(err, httphead.ErrIncomplete) {
				got = "incomplete"
			} else if !errors.Is(err, httphead.ErrProxy) {
				t.Errorf("%q: %v does not wrap ErrProxy", name, err)
			}
			if strings.Contains(want, ".example") || !strings.Contains(got, want) {
				t.Errorf("%q: %v, want %q", name, err, want)
			}
			continue
		}
		got := r.Target()
		if r.Head != nil {
			head := strings.TrimSuffix(string(r.Head), "\r\nConnection: close\r\n\r\n")
			got += " " + strings.ReplaceAll(head, "\r\n", "|")
		}
		if got != want || r.Connect == (r.Head != nil) || r.Length != strings.Index(in, end)+len(end) {
			t.Errorf("%q:\n%q with %d bytes, want\n%q", name, got, r.Length, want)
		}
	}
}
