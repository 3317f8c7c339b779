package pcapgen

import "strings"

// spokenTLS are cases about which name a connection is for, and about certificates.
func spokenTLS() []Case {
	return append(spokenNames(), spokenCertificates()...)
}

func spokenNames() []Case {
	return []Case{
		{
			Name: "spoken-tls-host-other", Policy: spokenRules + spokenSecret, Zone: oneAddress(),
			Title: "Host headers that aren't the SNI.",
			Story: "Inside TLS for good.example the guest asks for other.example, which is allowed and at the same " +
				"address, and for evil.example. A server that goes by the Host header would answer for a site " +
				"whose rule was never asked, with the secret of another. Each is answered 421 with the reason; the " +
				"same name in capitals, with its port or a dot at its end is the same name and goes through.",
		},
		{
			Name: "spoken-tls-resumption", Policy: spokenRules + spokenSecret, Zone: twoSites(),
			Title: "A TLS session of one name is resumed for others.",
			Story: "The guest takes the session ticket that it got for good.example and resumes the session with " +
				"the SNI of other.example, at that one's address. A proxy that remembers the name with the session " +
				"would judge other.example's requests as good.example's and put its secret in. The resumed " +
				"connection is other.example's: the placeholder is refused there, good.example is misdirected, and " +
				"a hello for good.example at the other address is reset.",
		},
		{
			Name: "spoken-tls-early-data", Policy: spokenRules, Zone: twoSites()[:1], Odd: true,
			Title: "A request as early data, before the handshake is over.",
			Story: "The guest's ClientHello announces early data, and a request follows at once, encrypted for a " +
				"session that the gateway never gave out. Early data can be replayed by anyone who sees it and " +
				"comes before the server has proved its name. The gateway offers none and takes none: it answers " +
				"with a TLS alert, no server is dialled, and the same client without early data is served.",
		},
		{
			Name: "spoken-tls-hello-byte-by-byte", Policy: spokenRules, Zone: twoSites()[:1],
			Title: "A ClientHello in segments of one byte.",
			Story: "The guest sends its ClientHello one byte to a segment; a filter that looks for the name in the " +
				"first packet finds none and must not let the flow pass for that. The gateway gathers the bytes " +
				"until the name is whole, then inspects as always. A second hello stops in its middle and " +
				"never names anybody: nothing is dialled for it.",
		},
		{
			Name: "spoken-tls-server-first", Zone: nil,
			Policy: "\n[[egress.allow]]\nname = \"mail\"\ncidrs = [\"" + good + "/32\"]\nports = [25]\nprotocol = \"tcp\"\n",
			Title:  "A protocol in which the server speaks first.",
			Story: "A mail server greets before its client has said a word, so a gateway that waits for the " +
				"client's first bytes would keep both waiting for ever. A rule of protocol tcp names an address " +
				"and a port and needs no name: the greeting comes through at once, and so does the rest. " +
				"The port beside it is refused by a reset.",
		},
		{
			Name: "spoken-tls-alpn", Policy: spokenRules, Zone: twoSites()[:1],
			Title: "Clients that offer only protocols which can't be inspected.",
			Story: "The guest offers in ALPN only h3, only an invented protocol, and only SSH, to a name whose " +
				"rule wants each request judged. If the gateway agreed, bytes that nobody can read would go " +
				"through under a rule about paths. Each handshake ends with the alert no_application_protocol " +
				"and no server is dialled; offered with HTTP/1.1 beside it, HTTP/1.1 is what is spoken.",
		},
	}
}

func spokenCertificates() []Case {
	troubled := []string{"expired", "selfsigned", "another", "guests", "private"}
	var zone []string
	for i, name := range troubled {
		zone = append(zone, name+".good.example. 300 IN A 93.184.215."+string(rune('1'+i)))
	}
	under := strings.NewReplacer(`"good.example"`, `"good.example", "*.good.example"`)
	return []Case{
		{
			Name: "spoken-tls-upstream-certificates", Policy: under.Replace(spokenRules + spokenSecret), Zone: zone,
			Title: "Servers whose certificates don't hold.",
			Story: "Five servers stand at the addresses of allowed names, as after a hijacked route: one has an " +
				"expired certificate, one signed its own, one has another name's, one is signed by the " +
				"sandbox's own authority and one by an authority that only the guest trusts. The guest can't " +
				"see them, so the gateway must: each request is answered 502 with the cause, and neither request " +
				"nor secret is sent.",
		},
		{
			Name: "spoken-tls-client-certificate", Policy: spokenRules + spokenSecret, Zone: twoSites()[:1],
			Title: "A server that wants a client certificate.",
			Story: "The server asks for a client certificate. The gateway has none and must not borrow one of the " +
				"host's: a guest would speak with an identity that nobody gave it. The handshake fails, the " +
				"guest gets 502 with the cause tls at once, and neither the request nor the secret's value " +
				"has left for the server.",
		},
		{
			Name: "spoken-tls-upstream-closes", Policy: passedOn,
			Zone:  twoSites(),
			Title: "Allowed names whose servers close at once.",
			Story: "Two allowed servers accept the connection and close it before any handshake, as one does that " +
				"is overloaded. What must not happen is a guest that waits in silence, or that takes the " +
				"gateway's doing for the server's. The inspected one is told 502 with the cause closed; the one " +
				"that is only passed on sees its connection end.",
		},
		{
			Name: "spoken-tls-bypass-pinned", Zone: twoSites(),
			Policy: "\n[tls]\nbypass = [\"other.example\"]\n" + passedOn + spokenSecret,
			Title:  "A client that pins its server's certificate, with bypass and without.",
			Story: "A client trusts one certificate only. For other.example, which the policy lets bypass " +
				"inspection, it sees the server's own and speaks; what it sends is not looked into, so its " +
				"placeholder arrives as a placeholder and no value goes to a host that is not the secret's. At " +
				"good.example it meets the sandbox's authority, ends the handshake itself, and no server is dialled.",
		},
	}
}
