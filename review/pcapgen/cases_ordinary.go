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
			build: func(t *Tape) {
				t.Lookup("deb.debian.org", "151.101.2.132")
				c := t.Dial("151.101.2.132:80")
				c.Say(get("deb.debian.org", "/debian/dists/trixie/InRelease")).Hear(ok(strings.Repeat("Origin: Debian\n", 90)))
				c.Say(get("deb.debian.org", "/debian/dists/trixie/main/binary-amd64/Packages.xz")).Hear(ok("...")).Close()
			},
		},
		{
			Name: "pip", Policy: "include = [\"pypi\"]\n",
			Story: "pip install asks the index and downloads from the file host: two names, two TLS connections, both in the pypi preset.",
			build: func(t *Tape) {
				t.Visit("pypi.org", "151.101.0.223", "h2", "http/1.1")
				t.Visit("files.pythonhosted.org", "151.101.1.63", "h2", "http/1.1")
			},
		},
		{
			Name: "npm", Policy: "include = [\"npm\"]\n",
			Story: "npm install asks the registry over TLS and, as some packages' scripts do, a host that the preset does not name; that one is not resolved and its flow is refused.",
			build: func(t *Tape) {
				t.Visit("registry.npmjs.org", "104.16.0.35", "h2", "http/1.1")
				t.Visit("telemetry.example", evil, "h2")
			},
		},
		{
			Name: "git-https", Policy: "[[egress.allow]]\nname = \"github\"\nhosts = [\"github.com\"]\nports = [443]\nprotocol = \"tls\"\n",
			Story: "git clone over HTTPS: one lookup for each family, one TLS connection with a large answer.",
			build: func(t *Tape) {
				t.Zone("github.com. 60 IN A 140.82.121.4")
				t.Resolve("github.com", dns.TypeA)
				t.Resolve("github.com", dns.TypeAAAA)
				t.Dial("140.82.121.4:443").Say(helloFor("github.com", "h2", "http/1.1")).Hear(serverSpeaks(9000)).Close()
			},
		},
		{
			Name: "ssh", Policy: "[[egress.allow]]\nname = \"git over ssh\"\nhosts = [\"github.com\"]\nports = [22]\nprotocol = \"tcp\"\n",
			Story: "git over SSH under a tcp rule: the server may speak first, nothing is peeked at.",
			build: func(t *Tape) {
				t.Lookup("github.com", "140.82.121.4")
				t.Dial("140.82.121.4:22").Hear([]byte("SSH-2.0-babeld\r\n")).Say([]byte("SSH-2.0-OpenSSH_10.0\r\n")).Close()
			},
		},
		{
			Name: "curl-h1", Policy: inspected,
			Story: "curl fetches an allowed path over plain HTTP; the request is inspected.",
			build: func(t *Tape) {
				t.Lookup("good.example", good)
				t.Dial(good + ":80").Say(get("good.example", "/repos/acme")).Hear(ok("hello")).Close()
			},
		},
		{
			Name: "curl-h2", Policy: inspected,
			Story: "curl speaks HTTP/2 over TLS to a host whose rule names methods and paths: the flow is inspected.",
			build: func(t *Tape) { t.Visit("good.example", good, "h2", "http/1.1") },
		},
		{
			Name: "curl-h3", Policy: webOnly,
			Story: "A client tries QUIC to an allowed name, finds it refused, and falls back to TLS over TCP. QUIC would hide the name that the rule goes by.",
			build: func(t *Tape) {
				t.Lookup("good.example", good)
				initial := append([]byte{0xc3, 0, 0, 0, 1, 8, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0x44, 0x96}, make([]byte, 1182)...)
				t.UDP(good+":443", initial)
				t.Wait(300 * time.Millisecond)
				t.Dial(good + ":443").Say(helloFor("good.example", "h2")).Hear(serverSpeaks(2000)).Close()
			},
		},
		{
			Name: "dual-stack", Policy: webOnly,
			Story: "A client races IPv6 and IPv4 to the same name, as RFC 8305 has it; both addresses are pinned.",
			build: func(t *Tape) {
				t.Lookup("good.example", good6)
				t.Lookup("good.example", good)
				t.Dial("[" + good6 + "]:443").Say(helloFor("good.example", "h2")).Hear(serverSpeaks(700)).Close()
				t.Dial(good + ":443").Say(helloFor("good.example", "h2")).Close()
			},
		},
		{
			Name: "ping", Policy: "[[egress.allow]]\nname = \"ping\"\ncidrs = [\"93.184.215.0/24\"]\nprotocol = \"icmp\"\n",
			Story: "ping to an allowed address that answers, to one that does not, to the gateway itself, and to one that no rule covers.",
			build: func(t *Tape) {
				t.Ping(good, true)
				t.Ping("93.184.215.77", false)
				t.Ping("192.168.127.1", true)
				t.Ping(evil, false)
			},
		},
		{
			Name: "port-scan", Policy: "[[egress.allow]]\nname = \"one port\"\ncidrs = [\"45.33.32.156/32\"]\nports = [22]\nprotocol = \"tcp\"\n",
			Story: "A scan of forty ports of one public host. One is allowed and may be dialled; the other thirty-nine are reset by the gateway and nothing leaves for them.",
			build: func(t *Tape) {
				for port := 1; port <= 40; port++ {
					t.Refused(evil + ":" + strconv.Itoa(port))
				}
			},
		},
		{
			Name: "hosts-mapped", Policy: "[hosts]\n\"registry.internal\" = \"127.0.0.1:5000\"\n", Opens: []string{"127.0.0.1"},
			Story: "A name of [hosts] is answered with an address of the benchmarking range that stands for a service on the host. It is the only way there.",
			build: func(t *Tape) {
				t.Lookup("registry.internal", "198.18.1.0")
				t.Dial("198.18.1.0:80").Say(get("registry.internal", "/v2/")).Hear(ok("{}")).Close()
				t.Refused("127.0.0.1:5000")
			},
		},
		{
			Name: "private-rule", Policy: "[[egress.allow]]\nname = \"lab database\"\ncidrs = [\"10.20.0.0/16\"]\nports = [5432]\nprotocol = \"tcp\"\nprivate = true\n", Opens: []string{"10.20.3.4"},
			Story: "A private rule opens one range and one port. The same host on another port and its neighbour outside of the range stay shut.",
			build: func(t *Tape) {
				t.Dial("10.20.3.4:5432").Say([]byte{0, 0, 0, 8, 4, 210, 22, 47}).Hear([]byte("N")).Close()
				t.Refused("10.20.3.4:22")
				t.Refused("10.21.3.4:5432")
			},
		},
		{
			Name: "starttls", Policy: "[[egress.allow]]\nname = \"mail\"\nhosts = [\"mail.example\"]\nports = [587]\nprotocol = \"tcp\"\n",
			Story: "SMTP with STARTTLS on a tcp rule: the server speaks first, TLS begins in the middle, and the rule lets all of it pass.",
			build: func(t *Tape) {
				t.Lookup("mail.example", "198.35.26.96")
				t.Dial("198.35.26.96:587").Hear([]byte("220 mail.example ESMTP\r\n")).Say([]byte("EHLO guest\r\n")).
					Hear([]byte("250-mail.example\r\n250 STARTTLS\r\n")).Say([]byte("STARTTLS\r\n")).Hear([]byte("220 go\r\n")).Say(helloFor("mail.example")).Close()
			},
		},
		{
			Name: "public-default", Policy: everything + "\n[[egress.deny]]\nname = \"no gists\"\nhosts = [\"gist.example\"]\n",
			Story: "Everything public is allowed but one name. The denied name is neither resolved nor reachable by its SNI on an address that is open.",
			build: func(t *Tape) {
				t.Visit("anything.example", "104.18.2.3", "h2")
				t.Lookup("gist.example", "104.18.2.4")
				t.Dial("104.18.2.3:443").Say(helloFor("gist.example")).Close()
			},
		},
		{
			Name: "report-mode", Policy: "[egress]\nmode = \"report\"\n",
			Story: "Report mode lets through what rules would deny and says so, while special ranges stay shut.",
			build: func(t *Tape) {
				t.Visit("anything.example", "104.18.2.3", "h2")
				t.Refused("10.0.0.1:80")
			},
		},
	}
}
