package pcapgen

import (
	"fmt"
	"net/netip"

	"github.com/miekg/dns"
)

// literals are spellings of the host and of inner addresses that some reader, though not every one, takes
// for an address.
var literals = []string{
	"127.0.0.1", "0x7f000001", "2130706433", "0177.0.0.1", "127.1", "127.0.0.1.",
	"[::1]", "[::ffff:7f00:1]", "[::ffff:127.0.0.1]", "[fe80::1%25eth0]", "169.254.169.254", "0xa9fea9fe",
}

// inside are addresses of every class that an attacker's zone may give as an answer.
var inside = []string{
	"0.0.0.0", "127.0.0.1", "10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "169.254.1.1", "169.254.169.254",
	"168.63.129.16", "192.0.0.1", "192.0.2.1", "192.88.99.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1",
	"240.0.0.1", "255.255.255.255", "192.168.127.1",
	"::", "::1", "::127.0.0.1", "::ffff:10.0.0.1", "::ffff:0:10.0.0.1", "64:ff9b::a00:1", "64:ff9b:1::a00:1",
	"2002:a00:1::", "2001:0:a00:1::", "2001:0:4136:e378:8000:63bf:f5ff:fffe", "2606:2800:220:1:0:5efe:a00:1",
	"100::1", "2001:db8::1", "3fff::1", "5f00::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fec0::1", "ff02::1",
	"fd6d:7362::1",
}

// literalCases are addresses that come as text: in questions, answers, requests, redirects.
func literalCases() []Case {
	return []Case{
		{
			Name: "dns-literals", Policy: everything,
			Title: "Spellings of 127.0.0.1 asked for as if they were names.",
			Story: "Programs that do not know a spelling for an address ask the resolver for it as a name. The " +
				"guest asks for nine: hexadecimal, decimal, octal, short and dotted ones, of loopback and of " +
				"a metadata service. A resolver that took one for an address would hand out the host, and one " +
				"that asked outside would let a stranger choose. None is asked outside, though every public " +
				"name is allowed.",
			build: func(t *tape) {
				for _, name := range []string{
					"127.0.0.1", "0x7f000001", "0x7f.0.0.1", "2130706433", "0177.0.0.1", "127.1", "127.0.0.1.",
					"169.254.169.254", "::1",
				} {
					t.resolve(name, dns.TypeA)
				}
			},
		},
		{
			Name: "dns-answers-inside", Policy: webOnly,
			Title: "A zone of the attacker's answers with an address of every class that is not public.",
			Story: "Below an allowed wildcard lies a zone of the attacker's, which answers forty names with an " +
				"address each: every special range of both families, every form that carries an IPv4 address " +
				"inside, metadata services, the gateway itself. Rebinding needs one class that was forgotten. " +
				"The questions go out, since the names are allowed; no answer gives the guest an address, and " +
				"each is written down as rebinding.",
			build: func(t *tape) {
				for i, a := range inside {
					t.lookup(fmt.Sprintf("n%d.good.example", i), a)
				}
			},
		},
		{
			Name: "http-host-literals", Policy: inspected,
			Title: "Host headers that spell the host's loopback, on a connection to an allowed server.",
			Story: "On connections to the address of an allowed name the guest writes twelve spellings of " +
				"loopback and of a metadata service into the Host header: hexadecimal, octal, short, mapped, " +
				"with a zone, with a dot behind. A gateway that dialled what the header says would open the " +
				"host, and a server that forwards would too. Each request is refused, whichever way it could " +
				"be read, and nothing is dialled.",
			build: func(t *tape) {
				t.lookup("good.example", good)
				for _, l := range literals {
					t.asks(good+":80", "GET /repos/a HTTP/1.1\r\nHost: "+l+"\r\n\r\n")
				}
			},
		},
		{
			Name: "http-proxy-literals", Policy: everything,
			Title: "The same spellings as targets for the gateway's own proxy.",
			Story: "The guest asks the gateway's own proxy for tunnels to twelve spellings of loopback and of a " +
				"metadata service, then for the same as whole URLs. Here the gateway itself reads the " +
				"address, and libraries disagree on what 0177.0.0.1 or 127.1 mean. What is an address is " +
				"refused by its class, what is only nearly one is refused as unreadable, and nothing is " +
				"dialled although everything public is open.",
			build: func(t *tape) {
				for _, l := range literals {
					t.asks(explicitProxy, "CONNECT "+l+":80 HTTP/1.1\r\nHost: "+l+":80\r\n\r\n")
					t.asks(explicitProxy, "GET http://"+l+"/ HTTP/1.1\r\nHost: "+l+"\r\n\r\n")
				}
			},
		},
		{
			Name: "http-redirects-inside", Policy: inspected,
			Title: "An allowed server redirects to loopback, a private host and a metadata service, and the guest follows.",
			Story: "An allowed server answers with redirects to loopback, to a private host, to a metadata " +
				"service and to a name that no rule has; the guest's client follows each. A proxy that " +
				"followed them itself would fetch from the inside on the guest's behalf. Redirects go to the " +
				"guest, and what it then opens is judged like any other connection: all four are refused.",
			build: func(t *tape) {
				t.addZone("good.example. 300 IN A "+good, "evil.example. 300 IN A "+evil)
				t.resolve("good.example", dns.TypeA)
				for _, to := range []string{"127.0.0.1", "10.0.0.1", "169.254.169.254", "evil.example"} {
					t.dial(good + ":80").say(get("good.example", "/repos/a")).
						hear([]byte("HTTP/1.1 302 Found\r\nLocation: http://" + to + "/repos/a\r\nContent-Length: 0\r\n\r\n")).Close()
					if a, err := netip.ParseAddr(to); err == nil {
						t.refused(netip.AddrPortFrom(a, 80).String())
						continue
					}
					t.resolve(to, dns.TypeA)
					t.refused(evil + ":80")
				}
			},
		},
	}
}

// asks makes one request on a connection of its own, which is refused.
func (t *tape) asks(server, request string) {
	t.dial(server).say([]byte(request)).hear([]byte("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")).Close()
}
