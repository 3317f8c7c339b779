package pcapgen

import (
	"strconv"
	"strings"
)

// upgradeCases are requests that change what the connection is, or ask the server to read them as others.
func upgradeCases() []Case {
	const (
		websocket = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
		hidden    = "GET /admin HTTP/1.1\r\n" + hostLine + "\r\n"
		preface   = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	)
	read := func(fields string) string { return "GET /repos/a HTTP/1.1\r\n" + hostLine + fields + "\r\n" }
	all := []Case{
		{
			Name: "http-h2c", Odd: true,
			Title: "HTTP/2 in clear, by upgrade and by prior knowledge.",
			Story: "The guest asks to upgrade a request in clear to HTTP/2, and on another connection begins " +
				"with HTTP/2 at once. After the 101 every stream is a request of its own, in frames that a " +
				"filter for HTTP/1 does not read: a known way past proxies. The upgrade is taken out of the " +
				"first request, which stays an ordinary one and is dialled for; the second connection is " +
				"refused.",
			build: alone(
				read("Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"),
				preface,
			),
		},
		{
			Name: "http-upgrade-pipelined", Odd: true,
			Title: "A second request behind an upgrade, sent before the server has answered the first.",
			Story: "Behind a request to upgrade to WebSocket the guest sends, in the same segment, a request for " +
				"a path that no rule has. If the server declines, it reads that as the next request; if the " +
				"gateway takes it for WebSocket data already, nobody judges it. The bytes wait for the " +
				"server's answer: no upgrade came, so the connection ends, and they go nowhere.",
			build: alone(read(websocket)+hidden, read("Connection: Upgrade\r\nUpgrade: foo\r\n")+hidden),
		},
		{
			Name: "http-websocket-early", Odd: true,
			Title: "WebSocket frames before the 101.",
			Story: "A client sends a WebSocket frame in the same segment as its request to upgrade, before the " +
				"server has agreed. The frame holds text that reads as a request, so a server that declines " +
				"may answer it. Until the server has said 101 these bytes belong to nobody: the gateway holds " +
				"them back, and passes the allowed request on alone.",
			build: alone(read(websocket) + "\x81\x94\x00\x00\x00\x00GET /admin HTTP/1.1\r"),
		},
		{
			Name:  "http-connection-names",
			Title: "Connection headers that name fields which decide, so that the next server drops them.",
			Story: "Requests name Authorization, Host and X-Forwarded-For in their Connection header. RFC 9110 " +
				"has each proxy take out what is named there, so a client can make a server lose what the " +
				"gateway judged or put in. The gateway does what a proxy must, in its own copy, and sends a " +
				"Connection header of its own; the request itself is an allowed one.",
			build: alone(
				read("Connection: authorization, close\r\nAuthorization: Bearer x\r\n"),
				read("Connection: host\r\n"),
				read("Connection: x-forwarded-for\r\nX-Forwarded-For: 127.0.0.1\r\n"),
			),
		},
		{
			Name: "http-expect", Odd: true,
			Title: "Expect: 100-continue, and a body that is a request.",
			Story: "A POST says Expect: 100-continue and sends its body without waiting; another expects what no " +
				"server knows. Proxies that answer the first themselves, and servers that do not, lose count " +
				"of answers and bodies, and requests were smuggled that way. The first body is a request for " +
				"a forbidden path in plain sight; it stays a body, because its length says so, and is passed " +
				"on. The second expectation is refused.",
			build: alone(
				post("Expect: 100-continue\r\nContent-Length: "+strconv.Itoa(len(hidden))+"\r\n", hidden),
				post("Expect: 200-ok\r\nContent-Length: 5\r\n", "hello"),
			),
		},
		{
			Name:  "http-trace",
			Title: "TRACE, whose answer repeats the request.",
			Story: "The guest asks an allowed host with TRACE and with `trace`, whose answers repeat the whole " +
				"request as the server got it. Where a secret is put into requests, the echo would bring its " +
				"value back into the guest. TRACE is refused under every rule, also under one that names it " +
				"or any method, and nothing is dialled.",
			build: alone("TRACE /repos/a HTTP/1.1\r\n"+hostLine+"\r\n", "trace /repos/a HTTP/1.1\r\n"+hostLine+"\r\n"),
		},
		{
			Name:  "http-override",
			Title: "Headers that ask the server to take the request for another one.",
			Story: "GETs of an allowed path carry X-HTTP-Method-Override, X-Original-URL, X-Rewrite-URL, " +
				"X-Forwarded-Host and Forwarded. Frameworks act on them, so what was judged as a GET of " +
				"/repos would run as a DELETE of /admin or for another customer. A method in such a header is " +
				"judged as the method and refused; the others are taken out before the request is sent on.",
			build: alone(
				read("X-HTTP-Method-Override: DELETE\r\n"), read("X-Method-Override: PUT\r\n"),
				read("X-Original-URL: /admin\r\n"), read("X-Rewrite-URL: /admin\r\n"),
				read("X-Forwarded-Host: evil.example\r\n"), read("Forwarded: host=evil.example\r\n"),
			),
		},
		{
			Name:  "http-host-forms",
			Title: "One allowed host in six spellings of its Host header, three of which mean another place.",
			Story: "The Host header says good.example in upper case, with its port, with a dot behind, with " +
				"another port, with a name before an @, and with a comma. The first three are the same host " +
				"by every specification, and honest clients send them; they are allowed. The others lead " +
				"readers to different places, and are refused without a guess.",
			build: func(t *tape) {
				var all []string
				for _, h := range []string{"GOOD.EXAMPLE", "good.example:80", "good.example.", "good.example:8080", "good.example@evil.example", "good.example, evil.example"} {
					all = append(all, "GET /repos/a HTTP/1.1\r\nHost: "+h+"\r\n\r\n")
				}
				alone(all...)(t)
			},
		},
		{
			Name: "http-path-variants", Odd: true,
			Title: "Sixteen spellings of a path outside of the rule, or of one inside that readers take for it.",
			Story: "The rule has paths below /repos; sixteen requests try to leave it: empty segments, dots " +
				"plain and encoded once or twice, encoded slashes, backslashes, parameters behind a " +
				"semicolon, another case, a fragment, a NUL, overlong UTF-8. Servers clean such paths up " +
				"after the gateway has judged them, each in its own way. What is not one path for every " +
				"reader is refused, and nothing is dialled.",
			build: func(t *tape) {
				var all []string
				for _, p := range []string{
					"//repos/a", "/repos//../admin", "/repos/./../admin", "/repos/../admin", "/repos/%2e%2e/admin", "/repos/%2E./admin",
					"/repos/%252e%252e/admin", "/repos%2f..%2fadmin", "/repos/..;/admin", "/repos/..%5cadmin", `/repos/..\admin`,
					"/REPOS/a", "/repos/a#/../../admin", "/repos/%00/a", "/repos/%c0%ae%c0%ae/admin", "/repos",
				} {
					all = append(all, strings.Replace(read(""), "/repos/a", p, 1))
				}
				alone(all...)(t)
			},
		},
	}
	for i := range all {
		all[i].Policy = posting
	}
	return all
}
