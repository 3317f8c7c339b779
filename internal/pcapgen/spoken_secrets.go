package pcapgen

import "strings"

// SecondValue is the value of the second secret of spoken cases, which only good.example may be sent too.
const SecondValue = "second-real-value-4f1c0d9be7a2486d8c35e6a1b09f7712"

// SecretRules are the rules of a sandbox with the secret TOKEN.
const SecretRules = spokenRules + spokenSecret

// RotatedRules are the same with another value.
const RotatedRules = spokenRules + rotatedSecret

const rotatedSecret = `
[secrets.TOKEN]
from = "command:printf ` + SecondValue + `"
hosts = ["good.example"]
in = ["header:Authorization"]
placeholder = "tok_{24}"
`

// secondSecret may stand in more places than the first.
const secondSecret = `
[secrets.SECOND]
from = "command:printf ` + SecondValue + `"
hosts = ["good.example"]
in = ["header:X-Api-Key", "query:key", "body"]
placeholder = "key_{24}"
`

// spokenSecrets are about where placeholders and values may go, and how values come back.
func spokenSecrets() []Case {
	return append(spokenPlaceholders(), spokenAnswers()...)
}

// lookalikes are names that hold the secret's host, or nearly.
func lookalikes() (policy string, zone []string) {
	hosts := []string{"x.good.example", "good.example.evil.example", "evil-good.example", "good-example.evil.example"}
	policy = spokenRules + "\n[[egress.allow]]\nname = \"lookalikes\"\nhosts = [\"" + strings.Join(hosts, `", "`) +
		"\"]\nports = [443]\nprotocol = \"https\"\nmethods = [\"GET\"]\n" + spokenSecret
	for i, h := range hosts {
		zone = append(zone, h+". 300 IN A 93.184.215."+string(rune('1'+i)))
	}
	return policy, append(twoSites(), zone...)
}

func spokenPlaceholders() []Case {
	alike, alikeZone := lookalikes()
	return []Case{
		{
			Name: "spoken-secret-hosts", Policy: alike, Zone: alikeZone,
			Title: "The placeholder is sent to hosts that aren't the secret's.",
			Story: "The guest sends the placeholder to an allowed host that is not the secret's, to four names " +
				"that hold or resemble the right one, and to the right host on a port that no rule has. " +
				"Comparing names by their ends or beginnings would give the token to whoever registers such a " +
				"name. Each is refused with the secret's name before anything is dialled; only the right " +
				"host, on its port, gets the value.",
		},
		{
			Name: "spoken-secret-other-sandbox", Policy: spokenRules + spokenSecret, Zone: twoSites(),
			Title: "A placeholder that belongs to another sandbox.",
			Story: "The guest sends the placeholder of another sandbox, which has the same policy, to the right " +
				"host and to another one. If placeholders were known to all sandboxes of a host, one guest " +
				"could use what only another was given. To this gateway it is a word like any other: it is " +
				"passed on as it stands, and no value takes its place. The sandbox's own placeholder still " +
				"works on the same connection.",
		},
		{
			Name: "spoken-secret-places", Policy: spokenRules + spokenSecret, Zone: twoSites(),
			Title: "The placeholder at the right host, in places that the secret does not list.",
			Story: "The right host is sent the placeholder in the path, the query, Cookie, Referer, User-Agent, " +
				"as a header's name and in the body, while the secret lists Authorization only. Servers write " +
				"most of these into logs, or show them to others, where a value must never be. Each is " +
				"refused as a violation that names the secret. Of the body, which is searched while it " +
				"passes, the server gets what stands before the placeholder, and a request that breaks off " +
				"there.",
		},
		{
			Name: "spoken-secret-many", Policy: spokenRules + spokenSecret, Zone: twoSites()[:1],
			Title: "Very many placeholders in one header.",
			Story: "A header holds two hundred placeholders, and another on a new connection more than any head " +
				"may hold; each would grow to a longer value, so a small request could become a huge one. The " +
				"first is an odd request for the right place, and every placeholder in it is replaced. The " +
				"second is refused for its size before anything is put in, and the gateway serves on.",
		},
		{
			Name: "spoken-secret-split", Policy: spokenRules + spokenSecret + secondSecret, Zone: twoSites()[:1],
			Title: "Placeholders split over writes, TLS records, chunks, HTTP/2 frames.",
			Story: "Placeholders come in two pieces: a header over two TLS records, a body over two writes and " +
				"over two chunks, an HTTP/2 header over HEADERS and CONTINUATION, an HTTP/2 body over two " +
				"DATA frames. Whoever looks at pieces finds none of them, and would pass on a placeholder " +
				"where a value belongs, or miss one where it is forbidden. The server gets whole values where " +
				"the secret lists the place; the other secret in the same pieces is refused, and the server's " +
				"request breaks off before it.",
		},
		{
			Name: "spoken-secret-encoded", Policy: spokenRules + spokenSecret, Zone: twoSites()[:1],
			Title: "Placeholders in other spellings: encoded, in capitals, in UTF-16, reversed.",
			Story: "The placeholder is written percent-encoded, in base64, in hexadecimal, with JSON's and " +
				"HTML's escapes, in UTF-16, in capitals, in places where it is not welcome, in fields and in " +
				"bodies. A server that decodes it would hand on what it finds, and a guest could probe which " +
				"spelling is missed. Each is refused as a violation. Reversed it is no spelling that anyone " +
				"decodes: it goes through as it is, a placeholder still, which is worth nothing.",
		},
		{
			Name: "spoken-secret-two", Policy: spokenRules + spokenSecret + secondSecret, Zone: twoSites(),
			Title: "Two secrets in one request, in their places and in each other's.",
			Story: "One request carries two secrets, each where it may stand, and both are replaced: a header, a " +
				"query and a body at once. Then they change places, and one of them goes to a host that has " +
				"neither. If the proxy asked only whether any secret may stand there, one could be had in the " +
				"other's place. Both swaps are refused with the right secret's name.",
		},
		{
			Name: "spoken-secret-in-words", Policy: spokenRules + spokenSecret, Zone: twoSites()[:1],
			Title: "The placeholder inside of longer words, doubled, cut short.",
			Story: "The Authorization field holds the placeholder as the beginning, the middle and the end of " +
				"longer words, twice without a gap, and without its last character. Where it stands whole, " +
				"byte by byte, in its place at its host, it is replaced, whatever is around it; a part of it " +
				"is nothing. The server gets values with the guest's letters around them, and the shortened " +
				"one as it was.",
		},
		{
			Name: "spoken-secret-in-clear", Policy: spokenRules + inClear + spokenSecret, Zone: twoSites()[:1],
			Title: "The placeholder over plain HTTP.",
			Story: "The guest asks the right host over plain HTTP, which a rule allows, with the placeholder in " +
				"its place. On the way to that server everyone could read the value, and nobody has proved to " +
				"be the host. The request is refused as one that would send a secret in clear; the same " +
				"without a placeholder goes through.",
		},
		{
			Name: "spoken-secret-websocket", Policy: spokenRules + spokenSecret, Zone: twoSites()[:1],
			Title: "A value and a placeholder in the frames of a WebSocket.",
			Story: "A WebSocket is opened with the placeholder in the handshake's Authorization, a listed place. " +
				"Then the server shows the value in its first frame, and the guest sends its placeholder in " +
				"one. Whoever looks at the handshake alone passes both on. The guest gets the placeholder in " +
				"the value's place; its own frame is a violation, since the secret doesn't list WebSocket " +
				"messages: the server gets what came before it, and the guest a Close frame.",
		},
	}
}

func spokenAnswers() []Case {
	return []Case{
		{
			Name: "spoken-secret-redirect", Policy: spokenRules + spokenSecret, Zone: twoSites(),
			Title: "A redirect with the value in its target, which the client follows.",
			Story: "The right host answers with redirects to other.example and to evil.example whose targets " +
				"hold the value it was sent. A client follows with what it was told, so the value would go to " +
				"a host of the server's choice, by way of the guest. In the answer the value is a placeholder " +
				"again, and at other.example the placeholder is refused; evil.example isn't even resolved.",
		},
		{
			Name: "spoken-secret-echo-fields", Policy: spokenRules + spokenSecret, Zone: twoSites()[:1],
			Title: "A server repeats the value in headers, cookies, trailers and an error page.",
			Story: "The server repeats the value that it was sent: in a header, in Set-Cookie, Location, Link, " +
				"an early hint, a trailer, on the page of a 401 and of a 500, over HTTP/1.1 and HTTP/2. Debug " +
				"pages and login flows do that, and a guest may ask for them on purpose. In every one of them " +
				"the guest finds the placeholder that it knows, and never the value.",
		},
		{
			Name: "spoken-secret-echo-bodies", Policy: spokenRules + spokenSecret, Zone: twoSites()[:1],
			Title: "The value in bodies of every encoding, over chunk borders and events.",
			Story: "The server sends the value back in bodies that are plain, gzip, deflate, brotli and zstd, in " +
				"two chunks with the border in the middle of the value, and as a stream of events. A search " +
				"in the bytes on the wire finds none of the packed ones and misses what lies on a border. " +
				"Bodies are unpacked and searched as a stream: the guest reads the placeholder in all of " +
				"them.",
		},
		{
			Name: "spoken-secret-echo-spellings", Policy: spokenRules + spokenSecret, Zone: twoSites()[:1],
			Title: "The value comes back in other spellings.",
			Story: "The server shows the value percent-encoded, in base64 with three beginnings, in hexadecimal, " +
				"in capitals, with JSON's and HTML's escapes and in UTF-16, as pages, logs and debug dumps do " +
				"without any ill will. A guest that gets one of them needs a line of code to have the value. " +
				"All these spellings are known and replaced, in one body: none of them is in what the guest " +
				"reads.",
		},
		{
			Name: "spoken-secret-halves", Policy: spokenRules + spokenSecret, Zone: twoSites()[:1],
			Title: "The value is asked for in two halves, and by way of a cache.",
			Story: "The guest asks for the bytes up to the middle of the value, then for those behind it, and " +
				"then whether its copy is still good. Neither half would be recognised, and put together they " +
				"are the value. Range is taken out of requests, so that the whole answer comes and is masked; " +
				"a 304 goes through, with the value in its ETag as a placeholder.",
		},
		{
			Name: "spoken-secret-rotation", Policy: SecretRules, Zone: twoSites()[:1],
			Title: "The value changes while the guest works.",
			Story: "The policy is loaded again with another value for the secret, while the guest's connection " +
				"stays open. The server repeats both values that it was sent, as one does that says what it " +
				"had expected. A proxy that knows only the newest value would let the old one through, which " +
				"may be good elsewhere still. The guest's placeholder stays the same and gets the new value; " +
				"in the answer both are that placeholder.",
		},
	}
}
