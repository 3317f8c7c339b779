package pcapgen

import (
	"fmt"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// hostLine is the Host header of an allowed request.
const hostLine = "Host: good.example\r\n"

// posting is the policy of cases whose POST would be fine but for what is wrong with it.
var posting = strings.Replace(inClear, `methods = ["GET"]`, `methods = ["GET", "POST"]`, 1)

// alone puts each request on a connection of its own to an address of its own, so that what was dialled
// tells which of them were passed on. All are the allowed host's.
func alone(requests ...string) func(*tape) {
	return func(t *tape) {
		addr := func(i int) string { return fmt.Sprintf("93.184.215.%d", 101+i) }
		for i := range requests {
			t.addZone("good.example. 300 IN A " + addr(i))
		}
		t.resolve("good.example", dns.TypeA)
		for i, r := range requests {
			t.asks(addr(i)+":80", r)
		}
	}
}

func post(fields, body string) string {
	return "POST /repos/a HTTP/1.1\r\n" + hostLine + fields + "\r\n" + body
}

// framingCases are requests whose ends two readers see in two places.
func framingCases() []Case {
	const hidden = "GET /admin HTTP/1.1\r\n" + hostLine + "\r\n"
	all := []Case{
		{
			Name: "http-smuggle", Odd: true,
			Title: "Content-Length beside Transfer-Encoding, with a second request hidden in what one of them calls the body.",
			Story: "A POST, which the rule allows, has both Content-Length: 4 and chunked encoding, and behind " +
				"the empty chunked body stands GET /admin. Readers that go by one or by the other disagree on " +
				"where the body ends, and a forbidden request can be smuggled through that gap. A head " +
				"that gives its length twice is refused unread, although the rule allows the POST, and nothing " +
				"is dialled.",
			build: alone(post("Content-Length: 4\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"+hidden)),
		},
		{
			Name: "http-lengths", Odd: true,
			Title: "Nine ways to write a Content-Length that readers take for different numbers.",
			Story: "Nine POSTs say how long they are in a way that readers take differently: two lengths, a " +
				"list, a plus, a minus, hexadecimal, a number beyond 64 bits, a space inside, nothing at all, " +
				"a word. Behind each body stands a request for a path that no rule has. The gateway takes " +
				"plain decimal digits, once, and nothing else: all nine are refused, and nothing is dialled.",
			build: func(t *tape) {
				var all []string
				for _, n := range []string{"5\r\nContent-Length: 6", "5, 5", "+5", "-5", "0x5", "18446744073709551621", "5 5", "", "five"} {
					all = append(all, post("Content-Length: "+n+"\r\n", "hello"+hidden))
				}
				alone(all...)(t)
			},
		},
		{
			Name: "http-codings", Odd: true,
			Title: "Transfer-Encoding misspelt, doubled, in lists, and with a control byte in front.",
			Story: "Six POSTs name their Transfer-Encoding in a way that one reader takes for chunked and " +
				"another does not: misspelt, doubled, in a list, in quotes, behind a control byte, in " +
				"HTTP/1.0. Whoever does not see chunks takes the hidden request behind them for one of its " +
				"own. The word must be exactly `chunked`, once, in HTTP/1.1; everything else is refused, and " +
				"nothing is dialled.",
			build: func(t *tape) {
				const body = "0\r\n\r\n" + hidden
				var all []string
				for _, field := range []string{
					"Transfer-Encoding: xchunked", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
					"Transfer-Encoding: identity, chunked", "Transfer-Encoding: \"chunked\"", "Transfer-Encoding: \x0bchunked",
				} {
					all = append(all, post(field+"\r\n", body))
				}
				all = append(all, strings.Replace(post("Transfer-Encoding: chunked\r\n", body), "HTTP/1.1", "HTTP/1.0", 1))
				alone(all...)(t)
			},
		},
		{
			Name: "http-chunks", Odd: true,
			Title: "Chunk sizes and extensions that hide line feeds, signs and lengths beyond any number.",
			Story: "Six chunked POSTs lie in their chunk lines: a line feed inside an extension, a bare line " +
				"feed as the end, a sign, a 0x, a size beyond 64 bits, data longer than its size. What one " +
				"reader takes for the end of a chunk is the begin of a request for another. Five are refused " +
				"with their heads; the data of the sixth is looked at while it passes, so its server is " +
				"dialled, and the request ends at the lie.",
			build: func(t *tape) {
				var all []string
				for _, chunk := range []string{"5;a=b\nc\r\nhello", "5\nhello", "+5\r\nhello", "0x5\r\nhello", "10000000000000005\r\nhello", "4\r\nhello"} {
					all = append(all, post("Transfer-Encoding: chunked\r\n", chunk+"\r\n0\r\n\r\n"+hidden))
				}
				alone(all...)(t)
			},
		},
		{
			Name:  "http-trailers",
			Title: "Trailers that name another host, a method and a credential.",
			Story: "Eight chunked POSTs, half of which announce it, bring in their trailers what belongs into a " +
				"head: Host, Authorization, X-HTTP-Method-Override and a second length. A server that merges " +
				"trailers into the head acts on a request that nobody judged. Those that are announced are " +
				"refused before anything is dialled; those that come unannounced end the request, which the " +
				"server never gets whole.",
			build: func(t *tape) {
				const body = "5\r\nhello\r\n0\r\n"
				var all []string
				for _, field := range []string{"Host: evil.example", "Authorization: Bearer x", "X-HTTP-Method-Override: DELETE", "Content-Length: 9"} {
					name, _, _ := strings.Cut(field, ":")
					all = append(all, post("Transfer-Encoding: chunked\r\nTrailer: "+name+"\r\n", body+field+"\r\n\r\n"),
						post("Transfer-Encoding: chunked\r\n", body+field+"\r\n\r\n"))
				}
				alone(all...)(t)
			},
		},
		{
			Name: "http-bare-cr", Odd: true,
			Title: "A carriage return alone, which some servers take for the end of a line.",
			Story: "Three requests hold a carriage return without a line feed: in a header's value, before a " +
				"second Host, in the request line. RFC 9112 lets a reader end the line there, replace it or " +
				"refuse; a filter and a server that choose differently read two different heads. The gateway " +
				"refuses all three, and nothing is dialled.",
			build: alone(
				"GET /repos/a HTTP/1.1\r\n"+hostLine+"X-A: b\rc\r\n\r\n",
				"GET /repos/a HTTP/1.1\r\n"+hostLine+"X-A: b\rHost: evil.example\r\n\r\n",
				"GET /repos/a\rGET /admin HTTP/1.1\r\n"+hostLine+"\r\n",
			),
		},
		{
			Name: "http-slow-head", Timed: true,
			Title: "A head that comes a byte a second.",
			Story: "A client sends its head a byte a second, as the slowloris attack does: each connection keeps " +
				"a place and a timer in whoever waits for it, for as long as the guest likes. The gateway " +
				"waits ten seconds for what decides. In the capture the bytes come over a minute and a half; " +
				"replayed without the pauses they are an ordinary request, which is allowed.",
			build: func(t *tape) {
				t.lookup("good.example", good)
				c := t.dial(good + ":80")
				for _, b := range []byte("GET /repos/a HTTP/1.1\r\n" + hostLine + "Accept: */*\r\nX-Slow: " + strings.Repeat("a", 20) + "\r\n\r\n") {
					t.wait(time.Second)
					c.say([]byte{b})
				}
				c.hear(ok("at last")).Close()
			},
		},
		{
			Name: "http-slow-body", Timed: true,
			Title: "A body that is announced as large and comes a byte a minute.",
			Story: "A POST announces a body of a hundred bytes and sends one a minute, then leaves. The request " +
				"is allowed, so the server is dialled, and both ends hold a connection for a guest that does " +
				"nothing. Only the number of connections bounds that: a slow upload is also what a slow line " +
				"looks like. The server gets what came, never a body that claims to be whole.",
			build: func(t *tape) {
				t.lookup("good.example", good)
				c := t.dial(good + ":80").say([]byte(post("Content-Length: 100\r\n", "")))
				for range 30 {
					t.wait(time.Minute)
					c.say([]byte("a"))
				}
				c.Close()
			},
		},
	}
	for i := range all {
		all[i].Policy = posting
	}
	return all
}
