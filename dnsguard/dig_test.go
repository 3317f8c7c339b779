package dnsguard

import (
	"context"
	"net"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// dig runs Debian's dig (package dnsutils, which scripts/setup --test installs)
// against addr and returns the answer's records, one a line, with single
// spaces, without TTLs.
func dig(t *testing.T, addr net.Addr, args ...string) []string {
	t.Helper()
	host, port, err := net.SplitHostPort(addr.String())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	args = append([]string{"@" + host, "-p", port, "+noall", "+answer", "+nottlid", "+tries=1", "+time=10"}, args...)
	out, err := exec.CommandContext(ctx, "dig", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("dig %v: %v\n%s", args, err, out)
	}
	var lines []string
	for line := range strings.Lines(string(out)) {
		if line = strings.Join(strings.Fields(line), " "); line != "" && !strings.HasPrefix(line, ";") {
			lines = append(lines, line)
		}
	}
	return lines
}

// TestDigAgreesWithOurReading compares three readings of the same zone: dig
// at the authority, dig at dnsguard, and what dnsguard's Answer says. The zone
// holds nothing that is filtered.
func TestDigAgreesWithOurReading(t *testing.T) {
	t.Parallel()
	k := newKit(t, judgeOf("*.example"), records(
		"a.example. 300 IN A 93.184.216.34", "a.example. 300 IN A 93.184.216.35",
		"six.example. 300 IN AAAA 2606:2800:220:1:248:1893:25c8:1946",
		"www.example. 300 IN CNAME cdn.example.", "cdn.example. 300 IN A 93.184.216.36",
		"mx.example. 300 IN MX 10 mail.example.", "mx.example. 300 IN MX 20 backup.mail.example.",
		"_sip._tcp.example. 300 IN SRV 1 2 5060 sip.example.",
		`txt.example. 300 IN TXT "v=spf1 -all" "two \"quoted\" \\ parts"`, `txt.example. 300 IN TXT "caf\195\169"`,
		"ns.example. 300 IN NS ns1.example.",
		"soa.example. 300 IN SOA ns.example. host.example. 1 2 3 4 5",
		`svc.example. 300 IN HTTPS 1 . alpn="h2,http/1.1" port=8443 ipv4hint="93.184.216.34" ipv6hint="2606:2800::1"`,
		`svc.example. 300 IN SVCB 2 other.example. alpn="h2"`,
		"alias.example. 300 IN HTTPS 0 svc.example.",
		"ptr.example. 300 IN PTR a.example.",
	))
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	t.Cleanup(wg.Wait)
	t.Cleanup(func() { _ = conn.Close() })
	wg.Go(func() {
		buf := make([]byte, 64<<10)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			guest, ours := net.Pipe() // a flow for each question: whoever reads gets one datagram
			wg.Go(func() { k.ServeUDP(t.Context(), ours) })
			_, _ = guest.Write(buf[:n])
			n, _ = guest.Read(buf)
			_ = guest.Close()
			_, _ = conn.WriteTo(buf[:n], from)
		}
	})
	authority := net.UDPAddrFromAddrPort(k.auth.addr)
	for _, q := range []string{
		"a.example A", "A.eXample A", "six.example AAAA", "www.example A", "www.example CNAME", "mx.example MX",
		"_sip._tcp.example SRV", "txt.example TXT", "ns.example NS", "soa.example SOA", "svc.example HTTPS",
		"svc.example SVCB", "alias.example HTTPS", "ptr.example PTR", "a.example TXT", "none.example A",
	} {
		fields := strings.Fields(q)
		want := dig(t, authority, fields...)
		if absent := q == "none.example A" || q == "a.example TXT"; absent != (len(want) == 0) {
			t.Errorf("%s: the authority says %q", q, want)
		}
		got := dig(t, conn.LocalAddr(), fields...)
		// The authority answers in the zone's case, dnsguard in the question's.
		if !slices.EqualFunc(got, want, strings.EqualFold) {
			t.Errorf("%s: dig reads\n%q from dnsguard and\n%q from the authority", q, got, want)
		}
		m, _ := k.ask(t, fields[0], dns.StringToType[fields[1]])
		if parsed := digStyle(m); !slices.EqualFunc(parsed, want, strings.EqualFold) {
			t.Errorf("%s: dnsguard reads\n%q and dig\n%q", q, parsed, want)
		}
	}
}

// digStyle writes the records of m as dig does.
func digStyle(m *dns.Msg) (lines []string) {
	for _, rr := range m.Answer {
		line := strings.Join(strings.Fields(rr.String()), " ")
		fields := strings.SplitN(line, " ", 3) // owner, TTL, the rest
		line = fields[0] + " " + fields[2]
		switch rr.(type) {
		case *dns.HTTPS, *dns.SVCB:
			// dig quotes only alpn.
			for _, key := range []string{"port", "ipv4hint", "ipv6hint"} {
				line = unquote(line, key)
			}
		}
		lines = append(lines, line)
	}
	return lines
}

// unquote takes the quotes off key="value".
func unquote(line, key string) string {
	before, rest, ok := strings.Cut(line, key+`="`)
	if !ok {
		return line
	}
	value, after, _ := strings.Cut(rest, `"`)
	return before + key + "=" + value + after
}
