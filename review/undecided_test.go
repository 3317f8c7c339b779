package review_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/msb-project/msb/capture"
	"github.com/msb-project/msb/review"
)

// TestUndecidedVerdictsDoNotChange: neither side of a comparison that decides nothing is a change, nor a looser or stricter
// verdict. In the twin both sides decide.
func TestUndecidedVerdictsDoNotChange(t *testing.T) {
	t.Parallel()
	const named, public, nothing = "[[egress.allow]]\nhosts = [\"good.example\"]\nports = [443]\nprotocol = \"tls\"\n", "[egress]\ndefault = \"public\"\n", ""
	conditions := []review.Condition{review.IsChanged, review.Loosened, review.Tightened}
	for i, c := range []struct {
		policy, against string // "-" for none
		recorded        string
		want            []int
	}{
		{nothing, "-", "peek", []int{0, 0, 0}},
		{nothing, "-", "allow", []int{1, 0, 1}},
		{named, "-", "deny", []int{0, 0, 0}},
		{public, "-", "deny", []int{1, 1, 0}},
		{public, "-", "inspect", []int{1, 1, 0}},
		{public, named, "", []int{0, 0, 0}},
		{named, public, "", []int{0, 0, 0}},
		{public, nothing, "allow", []int{1, 1, 0}},
	} {
		l := newLink()
		comment := ""
		if c.recorded != "" {
			comment = capture.Verdict{Kind: capture.KindFlow, Flow: 1, Action: c.recorded, Reason: "rule"}.String()
		}
		l.w.Packet(capture.FromGuest, segmentTo(443, 40000, capture.SYN, 999, ""), comment)
		if err := l.w.Close(); err != nil {
			t.Fatal(err)
		}
		o := review.Options{Policy: policy(t, c.policy)}
		if c.against != "-" {
			o.Against = policy(t, c.against)
		}
		r := read(t, l.out.Bytes(), o)
		var got []int
		for _, condition := range conditions {
			got = append(got, r.Count(condition))
		}
		if !slices.Equal(got, c.want) || r.HasRecorded() != (c.recorded != "") {
			t.Errorf("%d: changed, loosened, tightened: %v, want %v; %q", i, got, c.want, r.Rows(false))
		}
	}
}

// toProxy is a segment of the guest's to the gateway's proxy.
func toProxy(flags byte, seq uint32, text string) []byte {
	f := segmentTo(3128, 40000, flags, seq, text)
	copy(f[30:34], []byte{192, 168, 127, 1})
	return f
}

// TestI16_UnfinishedRequestsToTheProxyAreNotGuessed: what a client asked for is judged when it has said it. One that leaves
// before that is denied, as by the gateway; of one that the capture lacks the rest of, nothing is decided.
func TestI16_UnfinishedRequestsToTheProxyAreNotGuessed(t *testing.T) {
	t.Parallel()
	const (
		half, rest = "CONNECT good.exa", "mple:443 HTTP/1.1\r\n\r\n"
		syn, ack   = capture.SYN, capture.ACK
		next       = 1000 + uint32(len(half))
	)
	opens := [][]byte{toProxy(syn, 999, ""), answered(toProxy(syn|ack, 0, "")), toProxy(ack, 1000, ""), toProxy(ack, 1000, half)}
	copy(opens[1][14+20+8:], []byte{0, 0, 3, 232}) // 1000
	for name, c := range map[string]struct {
		frames [][]byte
		want   string
		cut    bool
		lookup bool
	}{
		"the capture ends":             {opens, "undecided none", true, false},
		"the client ends its side":     {append(slices.Clip(opens), toProxy(ack|capture.FIN, next, "")), "deny unreadable", false, false},
		"the client resets it":         {append(slices.Clip(opens), toProxy(capture.RST, next, "")), "deny unreadable", false, false},
		"the gateway answers":          {append(slices.Clip(opens), answered(toProxy(ack, 1, "HTTP/1.1 400 Bad Request\r\n\r\n"))), "undecided none", true, false},
		"a segment is missing":         {append(slices.Clip(opens), toProxy(ack, next+1, rest[1:])), "undecided none", true, false},
		"its beginning is missing":     {[][]byte{toProxy(ack, next, rest), answered(toProxy(ack, 1, "HTTP/1.1 200 OK\r\n\r\n"))}, "undecided none", true, false},
		"the client has said the rest": {append(slices.Clip(opens), toProxy(ack, next, rest), answered(toProxy(ack, 1, "HTTP/1.1 200 OK\r\n\r\n"))), "undecided needs_name", true, false}, // and says no name in the tunnel
		"where its name leads is missing": {
			append(slices.Clip(opens[:3]), toProxy(ack, 1000, "CONNECT late.example:443 HTTP/1.1\r\n\r\n"), answered(toProxy(ack, 1, "HTTP/1.1 200 OK\r\n\r\n"))), "undecided none", true, false,
		},
		"it asks for the resolver": {
			append(slices.Clip(opens[:3]), toProxy(ack, 1000, "CONNECT 192.168.127.1:53 HTTP/1.1\r\n\r\n"), answered(toProxy(ack, 1, "HTTP/1.1 200 OK\r\n\r\n"))), "", false, true,
		},
	} {
		l := newLink()
		for _, f := range c.frames {
			l.w.Packet(directionOf(f), f, "")
		}
		if err := l.w.Close(); err != nil {
			t.Fatal(err)
		}
		const named = "[[egress.allow]]\nhosts = [\"good.example\", \"late.example\"]\nports = [443]\nprotocol = \"tls\"\n"
		r := read(t, l.out.Bytes(), review.Options{Policy: policy(t, named), Against: policy(t, named)})
		for f := range r.Flows() {
			var got [2]string
			for i, v := range []*review.Verdict{f.Verdict, f.Against} {
				if v != nil {
					got[i] = strings.TrimSpace(v.Action + " " + v.Reason)
				}
			}
			if fmt.Sprint(got) != fmt.Sprint([2]string{c.want, c.want}) || f.Cut != c.cut || f.Lookup != c.lookup {
				t.Errorf("%s: %q, cut %v, lookup %v; want %q, %v, %v", name, got, f.Cut, f.Lookup, c.want, c.cut, c.lookup)
			}
		}
		if r.Len() != 1 || len(r.Lookups) > 2 {
			t.Errorf("%s: %q", name, r.Rows(false))
		}
	}
}

// TestI16_UnansweredRequestsToTheProxyAreReviewedOnce: a client that leaves before the answer leaves nothing that two later
// connections would share.
func TestI16_UnansweredRequestsToTheProxyAreReviewedOnce(t *testing.T) {
	t.Parallel()
	const rules = byBytes + "[[egress.allow]]\nhosts = [\"good.example\"]\nports = [80]\nprotocol = \"http\"\n"
	for request, want := range map[string]string{
		"CONNECT good.example:9 HTTP/1.1\r\n\r\n":    "1:5 allow default_public, 2:4 allow default_public, 3:4 deny deny_rule",
		"GET http://good.example/x HTTP/1.1\r\n\r\n": "1:5 inspect needs_request, 2:4 allow default_public, 3:4 deny deny_rule, 1 /x allow",
	} {
		l := newLink()
		send := func(frames ...[]byte) {
			for _, f := range frames {
				l.w.Packet(directionOf(f), f, "")
			}
		}
		synAck := answered(toProxy(capture.SYN|capture.ACK, 0, ""))
		copy(synAck[14+20+8:], []byte{0, 0, 3, 232}) // 1000
		send(toProxy(capture.SYN, 999, ""), synAck, toProxy(capture.ACK, 1000, ""), toProxy(capture.ACK, 1000, request), toProxy(capture.RST, 1000+uint32(len(request)), ""))
		for port := uint16(40001); port <= 40002; port++ {
			send(segmentTo(443, port, capture.SYN, 999, ""), accepts(443, port, 999), segmentTo(443, port, capture.ACK, 1000, ""))
		}
		send(segmentTo(443, 40001, capture.ACK, 1000, clientHello("good.example")), segmentTo(443, 40002, capture.ACK, 1000, clientHello("evil.example")))
		if err := l.w.Close(); err != nil {
			t.Fatal(err)
		}
		if got := outcome(read(t, l.out.Bytes(), review.Options{Policy: policy(t, rules)})); got != want {
			t.Errorf("%q: %s, want %s", request, got, want)
		}
	}
}

// TestI16_UnfinishedHellosAreNotGuessed: the same for what a client says of itself in its first bytes. What is learned says why
// a connection teaches nothing.
func TestI16_UnfinishedHellosAreNotGuessed(t *testing.T) {
	t.Parallel()
	const half = "\x16\x03\x01\x01\x00\x01\x00\x00\xfc\x03\x03"
	const next = 1000 + uint32(len(half))
	to := func(flags byte, seq uint32, text string) []byte { return segmentTo(443, 40000, flags, seq, text) }
	for name, c := range map[string]struct {
		more [][]byte
		want string
		cut  bool
	}{
		"the capture ends":         {nil, "undecided needs_name", true},
		"the client ends its side": {[][]byte{to(capture.ACK|capture.FIN, next, "")}, "deny unreadable", false},
		"the client resets it":     {[][]byte{to(capture.RST, next, "")}, "deny unreadable", false},
		"the gateway resets it":    {[][]byte{answered(to(capture.RST, 1, ""))}, "undecided needs_name", true},
		"the gateway resets it, then the client ends its side": {
			[][]byte{answered(to(capture.RST, 1, "")), to(capture.ACK|capture.FIN, next, "")}, "undecided needs_name", true,
		},
		"a segment is missing":     {[][]byte{to(capture.ACK, next+1, "xx"), to(capture.ACK|capture.FIN, next+3, "")}, "undecided needs_name", true},
		"its beginning is missing": {nil, "undecided needs_name", true},
	} {
		l := newLink()
		if name != "its beginning is missing" {
			l.w.Packet(capture.FromGuest, to(capture.SYN, 999, ""), "")
			l.w.Packet(capture.ToGuest, accepts(443, 40000, 999), "")
			l.w.Packet(capture.FromGuest, to(capture.ACK, 1000, ""), "")
		}
		l.w.Packet(capture.FromGuest, to(capture.ACK, 1000, half), "")
		for _, f := range c.more {
			l.w.Packet(directionOf(f), f, "")
		}
		if err := l.w.Close(); err != nil {
			t.Fatal(err)
		}
		const named = "[[egress.allow]]\nhosts = [\"good.example\"]\nports = [443]\nprotocol = \"tls\"\n"
		r := read(t, l.out.Bytes(), review.Options{Policy: policy(t, named), Learn: true})
		for f := range r.Flows() {
			if got := strings.TrimSpace(f.Verdict.Action + " " + f.Verdict.Reason); got != c.want || f.Cut != c.cut {
				t.Errorf("%s: %q, cut %v; want %q, %v", name, got, f.Cut, c.want, c.cut)
			}
		}
		why := "the capture doesn't hold the client's first bytes, which decide (1)"
		if !c.cut {
			why = "refused whatever the rules: unreadable (1)"
		}
		if learned := string(r.Learned()); strings.Count(learned, "tcp good.example at ") != 1 || !strings.Contains(learned, why) {
			t.Errorf("%s: want %q said once:\n%s", name, why, learned)
		}
	}
}

// TestI16_ClientsThatBeginAgainSayNoMore: in a capture of the guest's side alone, a SYN with another number shows that the client
// gave up. The twin's capture ends before it.
func TestI16_ClientsThatBeginAgainSayNoMore(t *testing.T) {
	t.Parallel()
	for again, want := range map[bool]string{true: "deny unreadable false", false: "undecided needs_name true"} {
		l := newLink()
		frames := [][]byte{
			segmentTo(443, 40000, capture.SYN, 999, ""), segmentTo(443, 40000, capture.ACK, 1000, ""),
			segmentTo(443, 40000, capture.ACK, 1000, "\x16\x03\x01\x01\x00\x01\x00\x00\xfc\x03\x03"),
		}
		if again {
			frames = append(frames, segmentTo(443, 40000, capture.SYN, 5999, ""))
		}
		for _, f := range frames {
			l.w.Packet(capture.FromGuest, f, "")
		}
		if err := l.w.Close(); err != nil {
			t.Fatal(err)
		}
		r := read(t, classic(t, l.out.Bytes(), 1<<16), review.Options{Policy: policy(t, "[[egress.allow]]\ncidrs = [\"93.184.215.14/32\"]\nports = [443]\nprotocol = \"tls\"\n[[egress.deny]]\nhosts = [\"evil.example\"]\n")})
		for f := range r.Flows() {
			if got := fmt.Sprint(f.Verdict.Action, " ", f.Verdict.Reason, " ", f.Cut); f.ID == 1 && got != want {
				t.Errorf("begins again %v: %s, want %s", again, got, want)
			}
		}
	}
}
