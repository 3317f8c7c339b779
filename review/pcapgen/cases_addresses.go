package pcapgen

import "net/netip"

// probe connects to each address on port 80 and pings it, as a guest that looks for what is there.
func probe(addrs ...string) func(*Tape) {
	return func(t *Tape) {
		for _, a := range addrs {
			addr := netip.MustParseAddr(a)
			t.SYN(netip.AddrPortFrom(addr, 80).String())
			t.UDP(netip.AddrPortFrom(addr, 161).String(), []byte("public"))
			t.Ping(a, false)
		}
	}
}

// addresses are ways to say an address that must not be reached. All run where everything public is
// allowed: only the class of the address shuts them.
func addresses() []Case {
	all := []Case{
		{Name: "addr-loopback", Story: "The host's loopback in every spelling of IPv4: its range, and the unspecified address, which kernels take for the host.", build: probe("127.0.0.1", "127.1.2.3", "0.0.0.0", "0.0.0.1")},
		{Name: "addr-loopback6", Story: "Loopback and the unspecified address of IPv6.", build: probe("::1", "::")},
		{Name: "addr-private", Story: "Every RFC 1918 range, the unique local range and the old site-local one.", build: probe("10.0.0.1", "172.16.0.1", "172.31.255.254", "192.168.1.1", "fc00::1", "fd12:3456::1", "fec0::1")},
		{Name: "addr-shared", Story: "The carrier's shared range, which overlay networks and clouds use inside.", build: probe("100.64.0.1", "100.127.255.254")},
		{Name: "addr-metadata", Story: "The metadata services of the clouds by address, the public one of Azure among them.", build: probe("169.254.169.254", "169.254.170.2", "169.254.170.23", "100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254")},
		{Name: "addr-linklocal", Story: "Link-local addresses of both families.", build: probe("169.254.1.1", "fe80::1")},
		{Name: "addr-special4", Story: "Protocol, documentation, benchmarking, relay, multicast, reserved and broadcast ranges of IPv4.", build: probe("192.0.0.1", "192.0.2.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "192.88.99.1", "224.0.0.1", "239.1.2.3", "240.0.0.1", "255.255.255.255")},
		{Name: "addr-special6", Story: "Discard, documentation, segment routing and multicast ranges of IPv6.", build: probe("100::1", "2001:db8::1", "3fff::1", "5f00::1", "ff02::1", "ff0e::1")},
		{Name: "addr-mapped", Story: "IPv4 addresses inside IPv6 ones: mapped, compatible and translated forms of loopback. The inner address is classified.", build: probe("::ffff:127.0.0.1", "::127.0.0.1", "::ffff:0:127.0.0.1", "::ffff:169.254.169.254")},
		{Name: "addr-nat64", Story: "NAT64 forms of loopback and of a metadata service, under the well-known prefix and the local one.", build: probe("64:ff9b::7f00:1", "64:ff9b:1::7f00:1", "64:ff9b::a9fe:a9fe")},
		{Name: "addr-6to4", Story: "6to4 addresses around loopback and a private range.", build: probe("2002:7f00:1::", "2002:a00:1::1")},
		{Name: "addr-teredo", Story: "Teredo addresses whose server or whose obfuscated client is a private or link-local address.", build: probe("2001:0:a00:1::", "2001:0:4136:e378:8000:63bf:f5ff:fffe", "2001:0:4136:e378:8000:63bf:5601:5601")},
		{Name: "addr-isatap", Story: "ISATAP interface identifiers around 10/8 and 169.254/16 below a public prefix.", build: probe("2606:2800:220:1:0:5efe:a00:1", "2606:2800:220:1:200:5efe:a9fe:a9fe")},
		{Name: "addr-gateway", Story: "The gateway's own addresses on ports other than DNS: there is nothing to reach.", build: func(t *Tape) {
			t.SYN("192.168.127.1:22")
			t.SYN("[fd6d:7362::1]:80")
			t.UDP("192.168.127.1:123", make([]byte, 48))
		}},
	}
	for i := range all {
		all[i].Policy = everything
	}
	return append(all, Case{
		Name: "addr-metadata-by-range", Policy: "[[egress.allow]]\nname = \"whole link\"\ncidrs = [\"169.254.0.0/16\"]\nports = [80]\nprotocol = \"tcp\"\nprivate = true\n", Opens: []string{"169.254.7.7"},
		Story: "A private rule over a whole range opens its ordinary addresses and not the metadata service inside: that must be named by itself.",
		build: func(t *Tape) {
			t.SYN("169.254.7.7:80")
			t.SYN("169.254.169.254:80")
		},
	})
}
