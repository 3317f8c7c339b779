package policies

import (
	"fmt"
	"testing"
)

func TestValuesPrintAsWritten(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		v    fmt.Stringer
		want string
	}{
		{DefaultPublic, "public"}, {Report, "report"}, {ProtocolTLS, "tls"}, {Any, "any"}, {ICMP, "icmp"}, {InspectNone, "none"}, {Terminate, "terminate"},
		{PortRange{443, 443}, "443"}, {PortRange{1, 9}, "1-9"}, {Place{InHeader, "X-Key"}, "header:X-Key"}, {Place{Kind: InBody}, "body"},
		{Position{"f", 3, 4}, "f:3:4"}, {Position{File: "--allow"}, "--allow"}, {Target{Builtin: "echo"}, "builtin:echo"}, {Server{}, "system"},
		{Protocol(99), "invalid(99)"}, {Place{Kind: 99}, "invalid(99)"}, {Server{Kind: 99}, "invalid(99)"},
	} {
		if got := c.v.String(); got != c.want {
			t.Errorf("%T prints as %q, want %q", c.v, got, c.want)
		}
	}
	for p, want := range map[Protocol]Protocol{HTTPS: TCP, HTTP: TCP, ProtocolTLS: TCP, TCP: TCP, UDP: UDP, ICMP: ICMP, Any: Any} {
		if got := p.Transport(); got != want {
			t.Errorf("the transport of %v is %v, want %v", p, got, want)
		}
	}
}

func TestServersRoundTrip(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"system": "system", "udp://192.0.2.1": "udp://192.0.2.1:53", "udp://[2001:db8::1]": "udp://[2001:db8::1]:53", "udp://2001:db8::1": "udp://[2001:db8::1]:53",
		"tls://192.0.2.1#Dns.Example.": "tls://192.0.2.1:853#dns.example", "https://dns.example:8443/q": "https://dns.example:8443/q", "https://[2001:db8::1]/q": "https://[2001:db8::1]/q",
	} {
		s, err := parseServer(in)
		if err != nil || s.String() != want {
			t.Errorf("ParseServer(%q) = %v, %v; want %s", in, s, err, want)
			continue
		}
		if again, err := parseServer(want); err != nil || again != s {
			t.Errorf("%s came back as %+v, %v", want, again, err)
		}
	}
}
