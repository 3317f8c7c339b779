package pcapgen

import "strings"

// httpCases are requests in clear, which show on the wire what inspection meets.
func httpCases() []Case {
	raw := func(name, story, request string) Case {
		return Case{Name: name, Story: story, Policy: inspected, Odd: name == "http-smuggle", build: func(t *Tape) {
			t.Lookup("good.example", good)
			c := t.Dial(good + ":80").Say([]byte(request))
			if name != "http-large-head" { // it never ends, so nobody answers
				c.Hear(ok("what the server says"))
			}
			c.Close()
		}}
	}
	const host = "Host: good.example\r\n"
	return []Case{
		raw("http-denied-path", "A path that the rule does not name.", "GET /admin HTTP/1.1\r\n"+host+"\r\n"),
		raw("http-denied-method", "A method that the rule does not name.", "DELETE /repos/acme HTTP/1.1\r\n"+host+"\r\n"),
		raw("http-host-other", "The address is pinned for one name, the Host header says another.", "GET /repos/a HTTP/1.1\r\nHost: evil.example\r\n\r\n"),
		raw("http-two-hosts", "Two Host headers: servers disagree on which counts.", "GET /repos/a HTTP/1.1\r\n"+host+"Host: evil.example\r\n\r\n"),
		raw("http-no-host", "No Host header at all.", "GET /repos/a HTTP/1.0\r\nAccept: */*\r\n\r\n"),
		raw("http-absolute", "An absolute-form target to another host than the header's.", "GET http://evil.example/repos/a HTTP/1.1\r\n"+host+"\r\n"),
		raw("http-connect", "CONNECT inside a connection to an allowed name: the gateway is no proxy to anywhere.", "CONNECT evil.example:443 HTTP/1.1\r\nHost: good.example\r\n\r\n"),
		raw("http-bare-lf", "Lines that end in a bare line feed.", "GET /repos/a HTTP/1.1\nHost: good.example\n\n"),
		raw("http-space-colon", "A space between header name and colon, which some servers take for another header.", "GET /repos/a HTTP/1.1\r\nHost : evil.example\r\n"+host+"\r\n"),
		raw("http-fold", "A folded header line (obs-fold).", "GET /repos/a HTTP/1.1\r\n"+host+"X-A: b\r\n c: d\r\n\r\n"),
		raw("http-nul", "A NUL in a header.", "GET /repos/a HTTP/1.1\r\n"+host+"X-A: b\x00c\r\n\r\n"),
		raw("http-tab", "A tab in the request line.", "GET\t/repos/a HTTP/1.1\r\n"+host+"\r\n"),
		raw("http-smuggle", "Content-Length beside Transfer-Encoding, with a second request hidden in what one of them calls the body.",
			"POST /repos/a HTTP/1.1\r\n"+host+"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /admin HTTP/1.1\r\nHost: good.example\r\n\r\n"),
		raw("http-path-tricks", "A path that means another after decoding.", "GET /repos/%2e%2e/admin HTTP/1.1\r\n"+host+"\r\n"),
		raw("http-second-request", "Two requests on one kept connection, the second not allowed: each is judged.",
			"GET /repos/a HTTP/1.1\r\n"+host+"\r\nGET /admin HTTP/1.1\r\n"+host+"\r\n"),
		raw("http-large-head", "A head over 16 KiB that never ends.", "GET /repos/a HTTP/1.1\r\n"+host+strings.Repeat("X-Fill: "+strings.Repeat("a", 500)+"\r\n", 40)),
		{
			Name: "http-to-443", Policy: inspected, Story: "Plain HTTP to port 443 of an allowed name.",
			build: func(t *Tape) {
				t.Lookup("good.example", good)
				t.Dial(good + ":443").Say(get("good.example", "/repos/a")).Hear(ok("what the server says")).Close()
			},
		},
		{
			Name: "http-proxy", Policy: webOnly + strings.Replace(inClear, "80", "8080", 1),
			Story: "A client that is told to use the gateway's own proxy: tunnels to an allowed name, to a denied name, to private and public addresses and with another name inside, a plain request that is allowed and one that is not, and one that can be read in two ways.",
			build: func(t *Tape) {
				t.Lookup("good.example", good)
				tunnel := func(target string) *Conn {
					return t.Dial(explicitProxy).Say([]byte("CONNECT " + target + " HTTP/1.1\r\nHost: " + target + "\r\n\r\n"))
				}
				established, denied := []byte("HTTP/1.1 200 Connection established\r\n\r\n"), []byte("HTTP/1.1 403 Forbidden\r\n\r\n")
				tunnel("good.example:443").Hear(established).Say(helloFor("good.example", "h2")).Close()
				tunnel("good.example:443").Hear(established).Say(helloFor("evil.example", "h2")).Close()
				tunnel("good.example:22").Hear(denied).Close()
				tunnel("evil.example:443").Hear(denied).Close()
				tunnel("metadata.google.internal:80").Hear(denied).Close()
				tunnel("10.0.0.1:80").Hear(denied).Close()
				tunnel(evil + ":443").Hear(denied).Close()
				tunnel("127.1:80").Hear([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")).Close()
				for _, path := range []string{"/repos/a", "/admin"} {
					t.Dial(explicitProxy).Say([]byte("GET http://good.example:8080" + path + " HTTP/1.1\r\nHost: good.example:8080\r\n\r\n")).Hear(denied).Close()
				}
			},
		},
	}
}
