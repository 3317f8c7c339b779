package pcapgen

import "slices"

// spokenHTTP are cases inside HTTP/1.1 under TLS.
func spokenHTTP() []Case {
	all := slices.Concat(spokenRequests(), spokenFraming(), spokenUpgrades())
	for i := range all {
		if all[i].Policy == "" {
			all[i].Policy = spokenRules + spokenSecret
		}
		if all[i].Zone == nil {
			all[i].Zone = twoSites()[:1]
		}
	}
	return all
}

func spokenRequests() []Case {
	return []Case{
		{
			Name: "spoken-http-kept-connection", Title: "Each request on a kept connection is judged anew.",
			Story: "One TLS connection carries an allowed request, one for another path, one with another method, " +
				"one with the placeholder in its query, and then three in a single write. A gateway that judged " +
				"the first and then copied bytes would be open to all the rest. Every request is answered by " +
				"itself, in order; the server sees the allowed ones only, with the value where it belongs.",
		},
		{
			Name: "spoken-http-rewriting-fields", Title: "Fields that tell a server another host, path or method.",
			Story: "Beside a placeholder that will be replaced, the guest names another host, path and method in " +
				"fields that frameworks and load balancers obey: X-Forwarded-Host, Forwarded, X-Original-URL, " +
				"X-Rewrite-URL. They don't reach the server, so that it serves what was judged. " +
				"A method in X-HTTP-Method-Override is judged as the request's own: DELETE is denied.",
		},
		{
			Name: "spoken-http-connection-names-fields", Title: "Connection: authorization.",
			Story: "A field that Connection names is for the next hop only, which removes it. With `Connection: " +
				"authorization` the guest has the gateway or the server drop the credentials, to get an answer " +
				"for strangers into a cache, or to learn how the proxy orders its steps. The field " +
				"is dropped before anything is sent: the server gets neither value nor placeholder.",
		},
		{
			Name: "spoken-http-trace", Title: "TRACE and CONNECT inside TLS.",
			Story: "TRACE asks the server to repeat the request, and with it the value that the gateway has just put " +
				"in; CONNECT asks it to become a tunnel in which nothing more is judged. Both come with the " +
				"placeholder on an allowed path. The gateway answers 405 itself, with the reason, and the server " +
				"hears of neither.",
		},
		{
			Name: "spoken-http-expect", Title: "Expect: a body that waits for a word.",
			Story: "With `Expect: 100-continue` a client holds its body back until it is told to go on. A gateway " +
				"that says 100 too early takes a body that will be refused; one that says nothing keeps " +
				"both waiting. A denied path is refused before the body, an allowed one is told to go on and " +
				"arrives whole, and an expectation that nobody knows is refused.",
		},
		{
			Name: "spoken-http-path-tricks", Title: "Paths that mean another after they are cleaned up.",
			Story: "The rule allows paths below /repos. The guest writes /admin in a dozen ways that begin there or " +
				"become it once somebody decodes, cleans or cuts them: dots, double slashes, percent signs once " +
				"and twice, backslashes, parameters, capitals, a fragment. Whatever could be read in two ways is " +
				"refused and not tidied up, and the server gets none of it.",
		},
		{
			Name: "spoken-http-gzip-bomb", Title: "An answer that is a thousand times larger than it looks.",
			Story: "A server answers with gzip of zeros, a thousand times larger inside. The gateway must " +
				"decompress what it searches for values, and a guest that reads slowly must not make it hold " +
				"the result. The capture shows the beginning. The answer streams through bounded memory, only as fast " +
				"as the guest reads, and when the guest hangs up the server is told to stop.",
		},
		{
			Name: "spoken-http-slow-head", Title: "A request's head, one byte to a TLS record.",
			Story: "The guest sends the head of a request for a denied path one byte to a TLS record. A filter that " +
				"looks for a request in each piece finds none. The gateway waits until the head is whole, up to " +
				"64 KiB and half a minute, and only then judges it: the path is denied, and nothing has " +
				"been dialled for any part of it.",
		},
	}
}

func spokenFraming() []Case {
	return []Case{
		{
			Name: "spoken-http-lengths", Title: "Content-Length twice, signed, listed, in hexadecimal, too large.",
			Story: "A request's end decides where the next one begins. The guest gives the length twice, as `+5`, " +
				"`5, 5`, `0x5`, -1, empty, larger than any integer, and beside chunked. Each has been read in two " +
				"ways by real servers, which lets a forbidden request hide in a body. Each is refused with 400 " +
				"before it has a meaning, the connection ends, and the server sees nothing.",
			Odd: true,
		},
		{
			Name: "spoken-http-chunked", Title: "Transfer-Encoding misspelt, doubled, listed, behind a control byte.",
			Story: "Whether a body is chunked depends on how a server reads one word. The guest writes it misspelt, " +
				"doubled, twice, behind a vertical tab, after another coding, and in HTTP/1.0, each time with a " +
				"second request in what would be the body or not. None is forwarded: 400 with the reason, the " +
				"end of the connection, and a server that was never dialled.",
			Odd: true,
		},
		{
			Name: "spoken-http-chunk-tricks", Title: "Chunks whose sizes and extensions hide a second request.",
			Story: "The head is in order, but a chunk's extension holds a line feed, a size line ends in one, has a " +
				"sign or `0x`, overflows, or is smaller than its chunk. Servers that are lenient in one of " +
				"these see GET /repos/evil where others see data. The request fails, nothing behind the fault is " +
				"read as a request, and the server never sees the second one.",
			Odd: true,
		},
		{
			Name: "spoken-http-trailers", Title: "Trailers that name Host or Authorization.",
			Story: "Behind a chunked body come trailers, which some servers merge into the head. The guest puts " +
				"Host, Authorization, a method override and a path there, announced or not: decisions made after the " +
				"gateway has judged. An announced one is refused before anything is sent, one that was not " +
				"ends the request with 400, and no server gets the field.",
			Odd: true,
		},
	}
}

func spokenUpgrades() []Case {
	return []Case{
		{
			Name: "spoken-http-h2c", Title: "An upgrade to HTTP/2 in the middle of HTTP/1.1.",
			Story: "With `Upgrade: h2c` a client goes over to HTTP/2 on the same connection, and with its preface " +
				"it does so without asking. If the gateway passed either on, all further requests would be " +
				"streams that nobody judges (h2c smuggling). The upgrade is not offered to the server, the " +
				"request is answered as HTTP/1.1, and neither what follows nor the preface is taken.",
			Odd: true,
		},
		{
			Name: "spoken-http-behind-upgrade", Title: "Requests behind an upgrade that doesn't happen.",
			Story: "The guest asks for an upgrade and sends a forbidden request right behind it, before the server " +
				"has said whether it agrees. The server doesn't, so what follows is neither WebSocket nor " +
				"checked HTTP. The gateway passes the refusal on and ends the connection: the second request is " +
				"answered by nobody and reaches nobody.",
		},
		{
			Name: "spoken-http-websocket", Title: "A WebSocket with early data, and requests inside it.",
			Story: "The server agrees to WebSocket. The guest has sent a frame before the 101 already, then sends " +
				"one with what looks like an HTTP request. The value goes into the handshake only: both frames " +
				"reach the server in order and as they are, and nothing inside is taken for a request.",
		},
	}
}
