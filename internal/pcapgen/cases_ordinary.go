package pcapgen

import (
	"strconv"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// get is a plain HTTP request as curl makes it.
func get(host, path string) []byte {
	return []byte("GET " + path + " HTTP/1.1\r\nHost: " + host + "\r\nUser-Agent: curl/8.14.1\r\nAccept: */*\r\n\r\n")
}

func ok(body string) []byte {
	return []byte("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body)
}

// ordinary are programs that do what they are there for.
func ordinary() []Case {
	return []Case{
		{
			Name: "apt", Policy: "[[egress.allow]]\nname = \"debian\"\nhosts = [\"deb.debian.org\"]\nports = [80]\nprotocol = \"http\"\n",
			Story: "apt-get update resolves the mirror, fetches the release file over plain HTTP on one kept connection, and closes it. Packages are signed, so plain HTTP is usual; each request is judged by its Host.",
			build: func(t *tape) {
				t.lookup("deb.debian.org", "151.101.2.132")
				c := t.dial("151.101.2.132:80")
				c.say(get("deb.debian.org", "/debian/dists/trixie/InRelease")).hear(ok(strings.Repeat("Origin: Debian\n", 90)))
				c.say(get("deb.debian.org", "/debian/dists/trixie/main/binary-amd64/Packages.xz")).hear(ok("...")).Close()
			},
		},
		{
			Name: "pip", Policy: "include = [\"pypi\"]\n",
			Title: "pip install asks the index and downloads from the file host: two names, two TLS " +
				"connections, both in the pypi preset.",
			Story: "pip install asks the index at pypi.org, then downloads from files.pythonhosted.org: " +
				"two names, two lookups and two TLS connections. Anyone who builds software in a sandbox " +
				"needs this to work out of the box, without opening other hosts beside. The pypi preset " +
				"names both, and each connection is allowed by the preset's rule for its name.",
			build: func(t *tape) {
				t.visit("pypi.org", "151.101.0.223", "h2", "http/1.1")
				t.visit("files.pythonhosted.org", "151.101.1.63", "h2", "http/1.1")
			},
		},
		{
			Name: "npm", Policy: "include = [\"npm\"]\n",
			Story: "npm install asks the registry over TLS and, as some packages' scripts do, a host that the preset does not name; that one is not resolved and its flow is refused.",
			build: func(t *tape) {
				t.visit("registry.npmjs.org", "104.16.0.35", "h2", "http/1.1")
				t.visit("telemetry.example", evil, "h2")
			},
		},
		{
			Name: "git-https", Policy: "[[egress.allow]]\nname = \"github\"\nhosts = [\"github.com\"]\nports = [443]\nprotocol = \"tls\"\n",
			Title: "git clone over HTTPS: one lookup for each family, one TLS connection with a large " +
				"answer.",
			Story: "git clone over HTTPS asks for both address families of github.com, gets an address " +
				"for IPv4 only, and receives a large answer on one TLS connection. An empty AAAA answer " +
				"must not count as a failure, and a long download must not be cut short. Lookups and " +
				"connection are allowed by the one rule, and the pinned address is dialled.",
			build: func(t *tape) {
				t.addZone("github.com. 60 IN A 140.82.121.4")
				t.resolve("github.com", dns.TypeA)
				t.resolve("github.com", dns.TypeAAAA)
				t.dial("140.82.121.4:443").say(helloFor("github.com", "h2", "http/1.1")).hear(serverSpeaks(9000)).Close()
			},
		},
		{
			Name: "ssh", Policy: "[[egress.allow]]\nname = \"git over ssh\"\nhosts = [\"github.com\"]\nports = [22]\nprotocol = \"tcp\"\n",
			Title: "git over SSH under a tcp rule: the server may speak first, nothing is peeked at.",
			Story: "git over SSH connects to port 22 of github.com, where the server sends its banner " +
				"first. A gateway that waited for the client's first bytes to learn a name would wait " +
				"for ever. A tcp rule needs no name in the stream: the connection is allowed by the " +
				"pinned address alone and dialled at once, and what is spoken on it nobody looks at.",
			build: func(t *tape) {
				t.lookup("github.com", "140.82.121.4")
				t.dial("140.82.121.4:22").hear([]byte("SSH-2.0-babeld\r\n")).say([]byte("SSH-2.0-OpenSSH_10.0\r\n")).Close()
			},
		},
		{
			Name: "curl-h1", Policy: inspected,
			Title: "curl fetches an allowed path over plain HTTP; the request is inspected.",
			Story: "curl resolves good.example and fetches /repos/acme over plain HTTP, under a rule " +
				"that names GET and paths below /repos. Inspection must not break an ordinary client " +
				"whose request is just what the rule describes. The flow is inspected, the request " +
				"allowed by the rule, and the server is dialled at the address that was pinned.",
			build: func(t *tape) {
				t.lookup("good.example", good)
				t.dial(good + ":80").say(get("good.example", "/repos/acme")).hear(ok("hello")).Close()
			},
		},
		{
			Name: "curl-h2", Policy: inspected,
			Title: "curl speaks HTTP/2 over TLS to a host whose rule names methods and paths: the flow " +
				"is inspected.",
			Story: "curl speaks TLS to good.example and offers HTTP/2, under a rule that names methods " +
				"and paths. These can be judged only inside TLS, so the gateway has to end the session " +
				"itself instead of passing it on. The flow is inspected; as the capture has no keys and " +
				"no requests, the review can say no more, and the replayed hello dials nobody.",
			build: func(t *tape) { t.visit("good.example", good, "h2", "http/1.1") },
		},
		{
			Name: "curl-h3", Policy: webOnly,
			Story: "A client tries QUIC to an allowed name, finds it refused, and falls back to TLS over TCP. QUIC would hide the name that the rule goes by.",
			build: func(t *tape) {
				t.lookup("good.example", good)
				initial := append([]byte{0xc3, 0, 0, 0, 1, 8, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0x44, 0x96}, make([]byte, 1182)...)
				t.udp(good+":443", initial)
				t.wait(300 * time.Millisecond)
				t.dial(good + ":443").say(helloFor("good.example", "h2")).hear(serverSpeaks(2000)).Close()
			},
		},
		{
			Name: "dual-stack", Policy: webOnly,
			Title: "A client races IPv6 and IPv4 to the same name, as RFC 8305 has it; both addresses " +
				"are pinned.",
			Story: "A client resolves both families of good.example and opens TLS connections to the " +
				"IPv6 and the IPv4 address nearly at once, as RFC 8305 has it. It uses whichever answers " +
				"first, so a pin of one family must not displace the other. Both connections say the " +
				"allowed name at an address pinned for it: both are allowed and dialled.",
			build: func(t *tape) {
				t.lookup("good.example", good6)
				t.lookup("good.example", good)
				t.dial("[" + good6 + "]:443").say(helloFor("good.example", "h2")).hear(serverSpeaks(700)).Close()
				t.dial(good + ":443").say(helloFor("good.example", "h2")).Close()
			},
		},
		{
			Name: "ping", Policy: "[[egress.allow]]\nname = \"ping\"\ncidrs = [\"93.184.215.0/24\"]\nprotocol = \"icmp\"\n",
			Title: "ping to an allowed address that answers, to one that does not, to the gateway " +
				"itself, and to one that no rule covers.",
			Story: "The guest pings an allowed address that answers, another in its range that is " +
				"silent, the gateway, and one outside of the range. Ping is how people find out what is " +
				"wrong, yet echo payloads can carry data, so a rule must cover the address. The two in " +
				"the range go out, the gateway answers by itself, and the last is denied, since no rule " +
				"covers it.",
			build: func(t *tape) {
				t.ping(good, true)
				t.ping("93.184.215.77", false)
				t.ping("192.168.127.1", true)
				t.ping(evil, false)
			},
		},
		{
			Name: "port-scan", Policy: "[[egress.allow]]\nname = \"one port\"\ncidrs = [\"45.33.32.156/32\"]\nports = [22]\nprotocol = \"tcp\"\n",
			Story: "A scan of forty ports of one public host. One is allowed and may be dialled; the other thirty-nine are reset by the gateway and nothing leaves for them.",
			build: func(t *tape) {
				for port := 1; port <= 40; port++ {
					t.refused(evil + ":" + strconv.Itoa(port))
				}
			},
		},
		{
			Name: "hosts-mapped", Policy: "[hosts]\n\"registry.internal\" = \"127.0.0.1:5000\"\n", Opens: []string{"127.0.0.1"},
			Story: "A name of [hosts] is answered with an address of the benchmarking range that stands for a service on the host. It is the only way there.",
			build: func(t *tape) {
				t.lookup("registry.internal", "198.18.1.0")
				t.dial("198.18.1.0:80").say(get("registry.internal", "/v2/")).hear(ok("{}")).Close()
				t.refused("127.0.0.1:5000")
			},
		},
		{
			Name: "private-rule", Policy: "[[egress.allow]]\nname = \"lab database\"\ncidrs = [\"10.20.0.0/16\"]\nports = [5432]\nprotocol = \"tcp\"\nprivate = true\n", Opens: []string{"10.20.3.4"},
			Title: "A private rule opens one range and one port. The same host on another port and its " +
				"neighbour outside of the range stay shut.",
			Story: "A private rule opens port 5432 of 10.20.0.0/16, as for a database in a lab. The " +
				"guest greets a server there, then tries SSH on the same host and the database port of a " +
				"host just outside of the range. The first is dialled; the others are refused as special " +
				"addresses, so that one opening does not become a way into the network.",
			build: func(t *tape) {
				t.dial("10.20.3.4:5432").say([]byte{0, 0, 0, 8, 4, 210, 22, 47}).hear([]byte("N")).Close()
				t.refused("10.20.3.4:22")
				t.refused("10.21.3.4:5432")
			},
		},
		{
			Name: "starttls", Policy: "[[egress.allow]]\nname = \"mail\"\nhosts = [\"mail.example\"]\nports = [587]\nprotocol = \"tcp\"\n",
			Title: "SMTP with STARTTLS on a tcp rule: the server speaks first, TLS begins in the middle, " +
				"and the rule lets all of it pass.",
			Story: "A mail client submits by SMTP on port 587: the server greets first, the client asks " +
				"for STARTTLS, and a TLS hello comes in the middle of the stream. A gateway that " +
				"insisted on reading a name first would stall or break this. The tcp rule lets the flow " +
				"pass by its pinned address, without a look at either part.",
			build: func(t *tape) {
				t.lookup("mail.example", "198.35.26.96")
				t.dial("198.35.26.96:587").hear([]byte("220 mail.example ESMTP\r\n")).say([]byte("EHLO guest\r\n")).
					hear([]byte("250-mail.example\r\n250 STARTTLS\r\n")).say([]byte("STARTTLS\r\n")).hear([]byte("220 go\r\n")).say(helloFor("mail.example")).Close()
			},
		},
		{
			Name: "public-default", Policy: everything + "\n[[egress.deny]]\nname = \"no gists\"\nhosts = [\"gist.example\"]\n",
			Title: "Everything public is allowed but one name. The denied name is neither resolved nor " +
				"reachable by its SNI on an address that is open.",
			Story: "Everything public is allowed but gist.example, a place where data could be pasted. " +
				"An ordinary name is resolved and visited; the denied one is then asked for, and said in " +
				"the TLS hello at the address of the allowed one, which a shared host might serve. Both " +
				"attempts at it are denied by the deny rule, and only the ordinary host is dialled.",
			build: func(t *tape) {
				t.visit("anything.example", "104.18.2.3", "h2")
				t.lookup("gist.example", "104.18.2.4")
				t.dial("104.18.2.3:443").say(helloFor("gist.example")).Close()
			},
		},
		{
			Name: "report-mode", Policy: "[egress]\nmode = \"report\"\n",
			Title: "Report mode lets through what rules would deny and says so, while special ranges " +
				"stay shut.",
			Story: "Under report mode and no rules the guest visits an ordinary public host and then " +
				"tries 10.0.0.1. The mode is for finding out what a policy would break, so the public " +
				"flow goes out and is marked as one that would be denied. It is no way inward: the " +
				"private address is refused as special all the same, and only the public host is " +
				"dialled.",
			build: func(t *tape) {
				t.visit("anything.example", "104.18.2.3", "h2")
				t.refused("10.0.0.1:80")
			},
		},
	}
}
