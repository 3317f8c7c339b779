package pcapgen

import "strings"

// httpCases are requests in clear, which show on the wire what inspection meets.
func httpCases() []Case {
	raw := func(name, title, story, request string) Case {
		return Case{Name: name, Title: title, Story: story, Policy: inspected, build: func(t *tape) {
			t.lookup("good.example", good)
			c := t.dial(good + ":80").say([]byte(request))
			if name != "http-large-head" { // it never ends, so nobody answers
				c.hear(ok("what the server says"))
			}
			c.Close()
		}}
	}
	const host = "Host: good.example\r\n"
	return []Case{
		raw("http-denied-path", "A path that the rule does not name.",
			"The guest asks an allowed host in clear for /admin, where the rule allows GET of paths "+
				"below /repos only. A rule that names paths is worth something only if each request line "+
				"is read before the server gets it. The flow is inspected, the request denied for its "+
				"path, and the server is not even dialled.",
			"GET /admin HTTP/1.1\r\n"+host+"\r\n"),
		raw("http-denied-method", "A method that the rule does not name.",
			"The guest sends DELETE for a path that it may read. An agent with a token for an API could "+
				"destroy what it was only meant to look at, if a rule's paths alone decided. The rule "+
				"names GET, so the request is denied for its method; the name was resolved before, but "+
				"no connection to the server is made.",
			"DELETE /repos/acme HTTP/1.1\r\n"+host+"\r\n"),
		raw("http-host-other", "The address is pinned for one name, the Host header says another.",
			"The guest connects to the address that is pinned for good.example and asks it in the Host "+
				"header for evil.example. Large hosts serve many customers at one address, so the header "+
				"alone would carry data to another of them. The request is denied because the address "+
				"was never given out for that name, and the server is not dialled.",
			"GET /repos/a HTTP/1.1\r\nHost: evil.example\r\n\r\n"),
		raw("http-two-hosts", "Two Host headers: servers disagree on which counts.",
			"One request has two Host headers, the allowed name first and evil.example second. Servers "+
				"and proxies disagree on which counts, so whatever the gateway picked, the server might "+
				"pick the other and serve a name that was never allowed. Nothing is guessed: the flow is "+
				"inspected, the request refused, and nothing is dialled.",
			"GET /repos/a HTTP/1.1\r\n"+host+"Host: evil.example\r\n\r\n"),
		raw("http-no-host", "No Host header at all.",
			"An HTTP/1.0 request for an allowed path has no Host header, so it names nobody. At an "+
				"address that serves many sites the server would answer for whichever is its default, "+
				"which no rule has spoken about. The request is denied because it has no name, and the "+
				"server sees no connection.",
			"GET /repos/a HTTP/1.0\r\nAccept: */*\r\n\r\n"),
		raw("http-absolute", "An absolute-form target to another host than the header's.",
			"The request line has the whole URL http://evil.example/repos/a, while the Host header says "+
				"good.example. RFC 9112 makes a server go by the request line, and a filter that reads "+
				"the header would allow what is meant for another host. That form is for proxies: the "+
				"request is refused and nothing is dialled.",
			"GET http://evil.example/repos/a HTTP/1.1\r\n"+host+"\r\n"),
		raw("http-connect", "CONNECT inside a connection to an allowed name: the gateway is no proxy to anywhere.",
			"On a connection to an allowed name the guest sends CONNECT evil.example:443, as to a proxy. "+
				"If the server took it, all bytes behind it would go to a host that no rule allows, and "+
				"nobody would judge them. The flow is inspected, the request refused for its method, and "+
				"no server is dialled.",
			"CONNECT evil.example:443 HTTP/1.1\r\nHost: good.example\r\n\r\n"),
		raw("http-bare-lf", "Lines that end in a bare line feed.",
			"The request's lines end in a bare line feed instead of carriage return and line feed. Some "+
				"servers accept that and some do not, and where two readers disagree on the end of a "+
				"line, one can be made to see a header or a request that the other does not. The head is "+
				"refused as unreadable, and nothing is dialled.",
			"GET /repos/a HTTP/1.1\nHost: good.example\n\n"),
		raw("http-space-colon", "A space between header name and colon, which some servers take for another header.",
			"A header line says `Host : evil.example`, with a space before the colon, above a proper one "+
				"for good.example. Some servers strip the space and obey the first, others ignore it as "+
				"unknown; a filter that does the opposite allows the wrong host. Such a head is refused "+
				"outright, and the server is never dialled.",
			"GET /repos/a HTTP/1.1\r\nHost : evil.example\r\n"+host+"\r\n"),
		raw("http-fold", "A folded header line (obs-fold).",
			"A header is continued on a second line that begins with a space, the folding that RFC 9112 "+
				"calls obsolete. One reader joins the lines, another takes the second for a header of "+
				"its own, so a value can be hidden from the one that judges. The request is refused "+
				"although its host and path are allowed, and no server is dialled.",
			"GET /repos/a HTTP/1.1\r\n"+host+"X-A: b\r\n c: d\r\n\r\n"),
		raw("http-nul", "A NUL in a header.",
			"An otherwise allowed request has a NUL byte in a header's value. A program in C ends the "+
				"string there and one in Go does not, so gateway and server would read two different "+
				"headers. Every byte of a head is checked before anything is judged: the request is "+
				"refused as unreadable, and nothing is dialled.",
			"GET /repos/a HTTP/1.1\r\n"+host+"X-A: b\x00c\r\n\r\n"),
		raw("http-tab", "A tab in the request line.",
			"The request line has a tab instead of the space between method and target. A lenient server "+
				"reads it as GET /repos/a, a strict one as a single odd word, and a filter must not "+
				"decide about a line that two readers take apart differently. The head is refused before "+
				"any request is made of it, and nothing is dialled.",
			"GET\t/repos/a HTTP/1.1\r\n"+host+"\r\n"),
		raw("http-path-tricks", "A path that means another after decoding.",
			"The guest asks for /repos/%2e%2e/admin. Taken literally that path lies below /repos, which "+
				"the rule allows; a server that decodes it first and then resolves the dots serves "+
				"/admin. Since the two readings differ, the path is denied as ambiguous instead of being "+
				"cleaned up by guess, and the server is not dialled.",
			"GET /repos/%2e%2e/admin HTTP/1.1\r\n"+host+"\r\n"),
		raw("http-second-request", "Two requests on one kept connection, the second not allowed: each is judged.",
			"Two requests are sent behind each other on one connection in clear: GET /repos/a, which the "+
				"rule allows, and GET /admin, which it does not. A filter that looks only at the start "+
				"of a connection would pass the second. Each is judged by itself: the server is "+
				"dialled for the first, and the second is not forwarded.",
			"GET /repos/a HTTP/1.1\r\n"+host+"\r\nGET /admin HTTP/1.1\r\n"+host+"\r\n"),
		raw("http-large-head", "A head over 16 KiB that never ends.",
			"The guest sends a head of some 20 KiB, forty long headers without the empty line that would "+
				"end it. A gateway that waited for the end would hold memory for as long as the guest "+
				"goes on, and for every connection it opens. Reading stops at 16 KiB: when the client "+
				"leaves, its request is denied unread, and nothing is dialled.",
			"GET /repos/a HTTP/1.1\r\n"+host+strings.Repeat("X-Fill: "+strings.Repeat("a", 500)+"\r\n", 40)),
		{
			Name: "http-to-443", Policy: inspected,
			Title: "Plain HTTP to port 443 of an allowed name.",
			Story: "The guest sends a request in clear to port 443 of an allowed name, whose rule wants " +
				"HTTPS there. If the gateway passed it on, the request would leave unencrypted under a " +
				"rule that promises TLS. The flow is to be inspected, but no TLS begins on it: no " +
				"request comes of it, and the server is not dialled.",
			build: func(t *tape) {
				t.lookup("good.example", good)
				t.dial(good + ":443").say(get("good.example", "/repos/a")).hear(ok("what the server says")).Close()
			},
		},
		{
			Name: "http-proxy", Policy: webOnly + strings.Replace(inClear, "80", "8080", 1),
			Story: "A client that is told to use the gateway's own proxy: tunnels to an allowed name, to a denied name, to private and public addresses and with another name inside, a plain request that is allowed and one that is not, and one that can be read in two ways.",
			build: func(t *tape) {
				t.lookup("good.example", good)
				tunnel := func(target string) *conn {
					return t.dial(explicitProxy).say([]byte("CONNECT " + target + " HTTP/1.1\r\nHost: " + target + "\r\n\r\n"))
				}
				established, denied := []byte("HTTP/1.1 200 Connection established\r\n\r\n"), []byte("HTTP/1.1 403 Forbidden\r\n\r\n")
				tunnel("good.example:443").hear(established).say(helloFor("good.example", "h2")).Close()
				tunnel("good.example:443").hear(established).say(helloFor("evil.example", "h2")).Close()
				tunnel("good.example:22").hear(denied).Close()
				tunnel("evil.example:443").hear(denied).Close()
				tunnel("metadata.google.internal:80").hear(denied).Close()
				tunnel("10.0.0.1:80").hear(denied).Close()
				tunnel(evil + ":443").hear(denied).Close()
				tunnel("127.1:80").hear([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")).Close()
				for _, path := range []string{"/repos/a", "/admin"} {
					t.dial(explicitProxy).say([]byte("GET http://good.example:8080" + path + " HTTP/1.1\r\nHost: good.example:8080\r\n\r\n")).hear(denied).Close()
				}
			},
		},
	}
}
