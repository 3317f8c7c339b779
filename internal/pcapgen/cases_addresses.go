package pcapgen

import "net/netip"

// probe connects to each address on port 80 and pings it, as a guest that looks for what is there.
func probe(addrs ...string) func(*tape) {
	return func(t *tape) {
		for _, a := range addrs {
			addr := netip.MustParseAddr(a)
			t.syn(netip.AddrPortFrom(addr, 80).String())
			t.udp(netip.AddrPortFrom(addr, 161).String(), []byte("public"))
			t.ping(a, false)
		}
	}
}

// addresses are ways to say an address that must not be reached. All run where everything public is
// allowed: only the class of the address shuts them.
func addresses() []Case {
	all := []Case{
		{Name: "addr-loopback",
			Title: "The host's loopback in every spelling of IPv4: its range, and the unspecified " +
				"address, which kernels take for the host.",
			Story: "The guest tries 127.0.0.1, another address of the loopback range, 0.0.0.0 and " +
				"0.0.0.1, each by TCP, UDP and ping. Dialled by the gateway, any of them could mean the " +
				"host itself, since kernels take the unspecified address for it, and would open " +
				"databases and agents that listen on loopback only. Each is denied as the host's " +
				"address; in the gateway 0.0.0.0 does not even pass the frame guard.",
			build: probe("127.0.0.1", "127.1.2.3", "0.0.0.0", "0.0.0.1")},
		{Name: "addr-loopback6",
			Title: "Loopback and the unspecified address of IPv6.",
			Story: "The guest tries ::1 and the unspecified address :: by TCP, UDP and ping. A filter " +
				"that knows loopback in IPv4 only would dial them, and a connection to :: ends at the " +
				"host's own services just as one to ::1 does. Both are denied as the host's address; in " +
				"the gateway :: does not even pass the frame guard.",
			build: probe("::1", "::")},
		{Name: "addr-private",
			Title: "Every RFC 1918 range, the unique local range and the old site-local one.",
			Story: "The guest looks for hosts in each RFC 1918 range, at both ends of 172.16.0.0/12, in " +
				"the unique local range and in the old site-local one. These are the office or home " +
				"network around the host, with routers and file servers that trust whoever is inside. No " +
				"private rule opens any of them here, so all are refused as special addresses.",
			build: probe("10.0.0.1", "172.16.0.1", "172.31.255.254", "192.168.1.1", "fc00::1", "fd12:3456::1", "fec0::1")},
		{Name: "addr-shared",
			Title: "The carrier's shared range, which overlay networks and clouds use inside.",
			Story: "The guest tries the first and the last host of 100.64.0.0/10, the range shared by " +
				"carriers. It looks public to filters that know RFC 1918 only, yet overlay networks and " +
				"clouds number their inner machines from it. TCP, UDP and ping to both ends are refused " +
				"as special addresses.",
			build: probe("100.64.0.1", "100.127.255.254")},
		{Name: "addr-metadata",
			Title: "The metadata services of the clouds by address, the public one of Azure among them.",
			Story: "The guest tries the metadata services of several clouds by address, among them the " +
				"container and pod endpoints of AWS, Alibaba's in the shared range, Azure's public " +
				"168.63.129.16 and two IPv6 ones. Any of them can hand out the machine's credentials to " +
				"whoever asks. All are refused as metadata addresses, although the policy allows " +
				"everything public and Azure's is public.",
			build: probe("169.254.169.254", "169.254.170.2", "169.254.170.23", "100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254")},
		{Name: "addr-linklocal",
			Title: "Link-local addresses of both families.",
			Story: "The guest connects to, queries and pings 169.254.1.1 and fe80::1. Link-local " +
				"addresses mean the host's own network segment: routers, printers and neighbours that " +
				"trust whoever is near. Opening everything public does not open them; all six attempts " +
				"are refused as special addresses, and nothing reaches the host's links.",
			build: probe("169.254.1.1", "fe80::1")},
		{Name: "addr-special4",
			Title: "Protocol, documentation, benchmarking, relay, multicast, reserved and broadcast " +
				"ranges of IPv4.",
			Story: "The guest tries ten ranges of IPv4: protocol assignments, three for " +
				"documentation, benchmarking, the 6to4 relay, two of multicast, the reserved block and " +
				"the broadcast address. None belongs to a server on the internet, but a host's network " +
				"may use or flood them. All are denied as special addresses and refused at once, but what " +
				"is for groups and for everybody, which the frame guard drops before. Nothing goes out.",
			build: probe("192.0.0.1", "192.0.2.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "192.88.99.1", "224.0.0.1", "239.1.2.3", "240.0.0.1", "255.255.255.255")},
		{Name: "addr-special6",
			Title: "Discard, documentation, segment routing and multicast ranges of IPv6.",
			Story: "The guest tries the discard range, both documentation ranges, segment routing and " +
				"two multicast groups of IPv6. A network that routes one of these privately would give a " +
				"guest a way in that no list of private ranges names, and multicast reaches many hosts " +
				"at once. Every attempt is denied as a special address; multicast does not even pass the " +
				"gateway's frame guard.",
			build: probe("100::1", "2001:db8::1", "3fff::1", "5f00::1", "ff02::1", "ff0e::1")},
		{Name: "addr-mapped",
			Title: "IPv4 addresses inside IPv6 ones: mapped, compatible and translated forms of " +
				"loopback. The inner address is classified.",
			Story: "IPv4 addresses are written inside IPv6 ones: 127.0.0.1 in mapped, compatible and " +
				"translated form, and the metadata service in mapped form. Host kernels turn a mapped " +
				"address back into IPv4 when they dial it, so a check of the outer form alone would be " +
				"passed by. The inner address is classified: three are refused as the host's, the last " +
				"as metadata.",
			build: probe("::ffff:127.0.0.1", "::127.0.0.1", "::ffff:0:127.0.0.1", "::ffff:169.254.169.254")},
		{Name: "addr-nat64",
			Title: "NAT64 forms of loopback and of a metadata service, under the well-known prefix and " +
				"the local one.",
			Story: "127.0.0.1 is written under the well-known NAT64 prefix and under the local one, and " +
				"the metadata service under the well-known one. On a network with a NAT64 gateway such a " +
				"packet would be translated and delivered to the inner address. Loopback is refused as " +
				"the host's address, the other as metadata, by every protocol that the guest tries.",
			build: probe("64:ff9b::7f00:1", "64:ff9b:1::7f00:1", "64:ff9b::a9fe:a9fe")},
		{Name: "addr-6to4",
			Title: "6to4 addresses around loopback and a private range.",
			Story: "The guest connects to, queries by SNMP and pings two 6to4 addresses, one around " +
				"127.0.0.1 and one around 10.0.0.1. A host with a 6to4 tunnel would unwrap them and talk " +
				"to the inner address, so a filter that sees only a global prefix lets the guest in. The " +
				"first is refused as the host's, the second as a special address; nothing leaves.",
			build: probe("2002:7f00:1::", "2002:a00:1::1")},
		{Name: "addr-teredo",
			Title: "Teredo addresses whose server or whose obfuscated client is a private, link-local or metadata " +
				"address.",
			Story: "Three Teredo addresses hide an inner one: the first has 10.0.0.1 as its server, the " +
				"others have 10.0.0.1 and the metadata service as their client, with the bits inverted " +
				"as Teredo does. A host with a Teredo interface would send packets there. The gateway " +
				"undoes the inversion: two are refused as special addresses, the last as metadata.",
			build: probe("2001:0:a00:1::", "2001:0:4136:e378:8000:63bf:f5ff:fffe", "2001:0:4136:e378:8000:63bf:5601:5601")},
		{Name: "addr-isatap",
			Title: "ISATAP interface identifiers around 10/8 and 169.254/16 below a public prefix.",
			Story: "Two IPv6 addresses with a public prefix carry an ISATAP interface identifier, one " +
				"around 10.0.0.1 and one around 169.254.169.254. A router that speaks ISATAP would send " +
				"such a packet to the inner IPv4 address. The guest gains neither the private host nor " +
				"the metadata service: TCP, UDP and ping are refused by the class of the inner address.",
			build: probe("2606:2800:220:1:0:5efe:a00:1", "2606:2800:220:1:200:5efe:a9fe:a9fe")},
		{Name: "addr-gateway",
			Title: "The gateway's own addresses on ports other than DNS: there is nothing to reach.",
			Story: "The guest tries SSH, HTTP and NTP at the gateway's own two addresses. Little more " +
				"than DNS and a proxy is served there; if other ports led on to the host, a guest could " +
				"find services that listen on every interface. All three are refused as the host's own " +
				"address, even where everything public is allowed, and nothing is dialled.",
			build: func(t *tape) {
				t.syn("192.168.127.1:22")
				t.syn("[fd6d:7362::1]:80")
				t.udp("192.168.127.1:123", make([]byte, 48))
			}},
	}
	for i := range all {
		all[i].Policy = everything
	}
	return append(all, Case{
		Name: "addr-metadata-by-range", Policy: "[[egress.allow]]\nname = \"whole link\"\ncidrs = [\"169.254.0.0/16\"]\nports = [80]\nprotocol = \"tcp\"\nprivate = true\n", Opens: []string{"169.254.7.7"},
		Title: "A private rule over a whole range opens its ordinary addresses and not the metadata " +
			"service inside: that must be named by itself.",
		Story: "The policy opens port 80 of the whole link-local range by a private rule. The guest " +
			"connects to an ordinary address in it, which is dialled, and to 169.254.169.254, where " +
			"a cloud gives out credentials. A range is not enough for the metadata service, which " +
			"must be named by exactly its own address: that connection is refused.",
		build: func(t *tape) {
			t.syn("169.254.7.7:80")
			t.syn("169.254.169.254:80")
		},
	})
}
