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
	}
}
