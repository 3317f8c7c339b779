package pcapgen

// spokenH2 are cases inside HTTP/2.
func spokenH2() []Case {
	return []Case{
		{
			Name: "spoken-h2-coalescing", Policy: spokenRules + spokenSecret, Zone: oneAddress(),
			Title: "HTTP/2 streams for another name than the connection's.",
			Story: "RFC 9113 lets a client put requests for several names on one connection if the certificate has " +
				"them all. The guest opens one to good.example and asks on single streams for other.example, " +
				"which is allowed at the same address, and for evil.example. Were streams judged by their " +
				"connection, any name would pass. Those streams are answered 421 and their neighbours served; " +
				"on a connection of its own other.example is served too.",
		},
		{
			Name: "spoken-h2-continuation-flood", Policy: spokenRules + spokenSecret, Zone: twoSites()[:1], Odd: true,
			Title: "A head that goes on in CONTINUATION frames without end.",
			Story: "The guest begins a request and continues its head frame after frame without ever ending it " +
				"(CVE-2023-45288 and its kin). A server that gathers the fields first runs out of memory; one that " +
				"only counts frames goes on decoding for ever. The gateway stops at 64 KiB of fields, ends the " +
				"connection with GOAWAY, and has asked no server for anything.",
		},
		{
			Name: "spoken-h2-rapid-reset", Policy: spokenRules, Zone: twoSites()[:1],
			Title: "Requests that are reset as soon as they are sent.",
			Story: "The guest opens streams and resets each at once (CVE-2023-44487), so that none counts as open " +
				"while the server behind works on all. The capture shows the beginning of two thousand. The " +
				"gateway has at most a hundred of a connection under way, ends one that runs ahead of it, gives " +
				"up upstream what was reset, and serves the next connection.",
		},
		{
			Name: "spoken-h2-settings-flood", Policy: spokenRules, Zone: twoSites()[:1],
			Title: "SETTINGS and PING frames that want to be acknowledged, without end.",
			Story: "Each SETTINGS and each PING frame must be answered (CVE-2019-9512, CVE-2019-9515). The guest " +
				"sends thousands and reads none of the answers, which would pile up at a server that queues " +
				"them without a bound. The capture shows the first of them. The gateway answers what it can, " +
				"memory stays bounded, and requests are served afterwards.",
		},
		{
			Name: "spoken-h2-hpack", Policy: spokenRules + spokenSecret, Zone: twoSites()[:1], Odd: true,
			Title: "Header compression as a weapon.",
			Story: "One field of 4,000 bytes goes into the compression table and is then repeated 200 times with a " +
				"byte each: 800 KB out of a few thousand bytes. Another block claims a table of a gigabyte, a " +
				"third points at an entry that does not exist. The first request is refused with 431, the others " +
				"end their connections with COMPRESSION_ERROR; a client that says it could take a huge " +
				"table is served as any other.",
		},
		{
			Name: "spoken-h2-never-indexed", Policy: spokenRules + spokenSecret, Zone: twoSites()[:1],
			Title: "The same field in every form that HPACK knows.",
			Story: "Clients mark credentials as never indexed, so that no proxy keeps them in a compression table. " +
				"The guest sends its placeholder in that form, then put into the table, then as a mere index " +
				"of it. A gateway that looked at bytes instead of fields would find it once. The right server " +
				"gets the value each time; on another field the placeholder is refused in each form.",
		},
		{
			Name: "spoken-h2-pseudo-headers", Policy: spokenRules + spokenSecret, Zone: twoSites()[:1], Odd: true,
			Title: "Pseudo-headers twice, late, missing and invented.",
			Story: "An HTTP/2 request names its method, path and host in pseudo-headers. The guest sends two of " +
				"one, one behind the ordinary fields, none, an empty one, one that does not exist, and a Host " +
				"field that says another name. Whichever the gateway judged, the server might take the other. " +
				"Each stream is refused, no server is asked, and the connection goes on.",
		},
		{
			Name: "spoken-h2-connection-headers", Policy: spokenRules + spokenSecret, Zone: twoSites()[:1], Odd: true,
			Title: "Fields of HTTP/1.1's framing inside HTTP/2.",
			Story: "HTTP/2 forbids Connection, Transfer-Encoding, Upgrade and their like, since a proxy that " +
				"turns the request into HTTP/1.1 would write them out and so let the guest frame a second " +
				"request of its own behind the first. A line feed inside a value and a name in capitals do the " +
				"same. Every one of these streams is refused and the server hears of none.",
		},
	}
}
