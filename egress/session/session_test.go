package session

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/policies"
)

// pins are the names of a test.
type pins map[netip.Addr][]hostname.Name

func (p pins) Pinned(addr netip.Addr) []hostname.Name { return p[addr] }

func (p pins) Mapped(netip.Addr) (hostname.Name, bool) { return hostname.Name{}, false }

var (
	gatewayAddr = netip.MustParseAddr("192.168.127.1")
	guestAddr   = netip.MustParseAddrPort("192.168.127.2:40000")
	webAddr     = netip.MustParseAddr("93.184.215.14")
	known       = pins{webAddr: {hostname.MustParse("web.example.com")}}
)

func rulesOf(t testing.TB, text string) *Rules {
	t.Helper()
	p, err := policies.Parse("test.toml", []byte("version = 1\n"+text), nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := NewRules(p, egress.NewClassifier(gatewayAddr), gatewayAddr)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// clientHello is the first flight of a TLS client.
func clientHello(name string) string {
	ours, theirs := net.Pipe()
	go func() {
		_ = tls.Client(ours, &tls.Config{ServerName: name, InsecureSkipVerify: name == ""}).Handshake()
	}()
	b := make([]byte, 16<<10)
	n, _ := theirs.Read(b)
	_ = theirs.Close()
	return string(b[:n])
}

const webTLS = "[[egress.allow]]\nhosts = [\"web.example.com\"]\n[[egress.allow]]\nname = \"plain\"\nhosts = [\"web.example.com\"]\nports = [443, 80]\nprotocol = \"http\"\n"

// TestI16_PiecesDecideNothing cuts what a client says into two pieces everywhere, and into single bytes.
func TestI16_PiecesDecideNothing(t *testing.T) {
	t.Parallel()
	rules := rulesOf(t, webTLS)
	hello := clientHello("web.example.com")
	behind := []byte(hello + "x") // in the hello's own record
	behind[3], behind[4] = byte((len(hello)-4)>>8), byte(len(hello)-4)
	head := "GET / HTTP/1.1\r\nHost: web.example.com\r\n"
	for name, said := range map[string]string{
		"hello":                      hello,
		"hello, then more":           hello + "\x17\x03\x03\x00\x01x",
		"bytes behind the hello":     string(behind),
		"head":                       head + "\r\nbody",
		"head with a bare line feed": head + "X: y\n\r\n",
		"head of 16 KiB":             head + "X: " + strings.Repeat("y", 16<<10-len(head)-5) + "\r\n\r\nGET",
		"head of 17 KiB":             head + "X: " + strings.Repeat("y", 17<<10) + "\r\n\r\n",
		"record of 20 KiB":           "\x16\x03\x01\x40\x00\x01\x00\x3f\xfc" + strings.Repeat("y", 20<<10),
		"no protocol":                "SSH-2.0-x\r\n\r\n",
		"one letter":                 "G",
	} {
		want := final(rules, []string{said})
		stride := max(1, len(said)/997)
		for i := 0; i <= len(said); i += stride {
			if got := final(rules, []string{said[:i], said[i:]}); got != want {
				t.Errorf("%s, cut at %d: %s, want %s", name, i, got, want)
				break
			}
		}
		if len(said) > 4<<10 {
			continue
		}
		if got := final(rules, strings.Split(said, "")); got != want {
			t.Errorf("%s, byte by byte: %s, want %s", name, got, want)
		}
	}
}

// final says what becomes of a client on port 443 that says pieces and then no more.
func final(rules *Rules, pieces []string) string {
	s, step := Open(rules, known, egress.TCP, guestAddr, netip.AddrPortFrom(webAddr, 443))
	first := ""
	for _, p := range pieces {
		if first += p; step.Action == NeedBytes && p != "" {
			step = s.Data([]byte(first), More)
		}
	}
	if step.Action == NeedBytes {
		step = s.Data([]byte(first), Silent)
	}
	return fmt.Sprint(step.Action, " ", s.Judged().Verdict.Reason, " ", step.Refusal.app)
}

func TestI16_GoneIsNotSilent(t *testing.T) {
	t.Parallel()
	rules := rulesOf(t, "[egress]\ndefault = \"public\"\n[tls]\nvia = \"http://192.0.2.1:3128\"\n")
	for end, want := range map[Ending]Action{Silent: Dial, Gone: Refuse} {
		s, step := Open(rules, known, egress.TCP, guestAddr, netip.AddrPortFrom(webAddr, 443))
		if step.Action != NeedBytes {
			t.Fatalf("got %s, want the client's first bytes", step.Action)
		}
		if step = s.Data(nil, end); step.Action != want {
			t.Errorf("a client that ended with %d: %s, want %s", end, step.Action, want)
		}
	}
}

// TestI16_DenialsWaitForApproval has a denial wait: it ends by an answer, by the timeout and by a reload.
func TestI16_DenialsWaitForApproval(t *testing.T) {
	t.Parallel()
	const asks = 30 * time.Second
	wait := func(policy string) *Rules {
		r := rulesOf(t, policy)
		r.Approval = func(*egress.Flow, egress.Verdict) time.Duration { return asks }
		return r
	}
	open := func(rules *Rules, addr string, port uint16) (*Session, Step) {
		return Open(rules, known, egress.TCP, guestAddr, netip.AddrPortFrom(netip.MustParseAddr(addr), port))
	}
	denied := wait("")
	for name, c := range map[string]struct {
		call func(s *Session) Step
		want Action
	}{
		"an answer":         {func(s *Session) Step { return s.Answer(true) }, Dial},
		"a refusal":         {func(s *Session) Step { return s.Answer(false) }, Reject},
		"the timeout":       {(*Session).Expire, Reject},
		"a reload":          {func(s *Session) Step { return s.Revise(wait("[egress]\ndefault = \"public\"\n")) }, Dial},
		"a reload for none": {func(s *Session) Step { return s.Revise(wait("")) }, Continue},
	} {
		s, step := open(denied, webAddr.String(), 443)
		if step.Action != Wait || step.Timeout != asks || step.Decided {
			t.Fatalf("a denial by default: %+v, want a wait", step)
		}
		if step = c.call(s); step.Action != c.want {
			t.Errorf("%s: %s, want %s", name, step.Action, c.want)
		}
	}
	for _, addr := range []string{"10.0.0.1", "169.254.169.254", "127.0.0.1"} {
		if _, step := open(denied, addr, 443); step.Action != Reject {
			t.Errorf("%s: %s, want no question", addr, step.Action)
		}
	}
	// An approval that comes after [limits] egress_bytes was used up opens nothing.
	limited, spent := wait(""), false
	limited.Spent = func() bool { return spent }
	late, step := open(limited, webAddr.String(), 443)
	if step.Action != Wait {
		t.Fatal(step.Action)
	}
	spent = true
	if step = late.Answer(true); step.Action != Reject {
		t.Errorf("an answer when nothing more may leave: %s, want %s", step.Action, Reject)
	}
	// A flow whose address became the host's while it waited is denied.
	owning, owned := wait(""), false
	owning.Owns = func(egress.Proto, netip.AddrPort) bool { return owned }
	open443, step := open(owning, webAddr.String(), 443)
	if step.Action != Wait {
		t.Fatal(step.Action)
	}
	owned = true
	if step = open443.Rejudge(); step.Action != Reject {
		t.Errorf("an address that became the host's: %s, want %s", step.Action, Reject)
	}
	// After the first bytes, a refusal is one in the client's own protocol.
	s, step := open(wait(webTLS), webAddr.String(), 443)
	if step.Action != NeedBytes {
		t.Fatal(step.Action)
	}
	if step = s.Data([]byte(clientHello("other.example.com")), More); step.Action != Wait {
		t.Fatal(step.Action)
	}
	if step = s.Expire(); step.Action != Refuse || step.Refusal.app != egress.AppTLS || !step.Decided {
		t.Errorf("got %+v, want an alert", step)
	}
}

// TestI16_ReviseEndsDeniedSessions judges running flows, and requests under way, by new rules.
func TestI16_ReviseEndsDeniedSessions(t *testing.T) {
	t.Parallel()
	const get = "[[egress.allow]]\nhosts = [\"web.example.com\"]\nprotocol = \"http\"\nmethods = [\"GET\"]\n"
	both := strings.Replace(get, "\"GET\"", "\"GET\", \"PUT\"", 1)
	ask := func(s *Session, method string) (egress.Verdict, func()) {
		f := s.Judged().Flow
		f.Stage, f.Name, f.App, f.Method, f.Path = egress.StageRequest, hostname.MustParse("web.example.com"), egress.AppHTTP, method, "/"
		return s.Request(&f)
	}
	request := func(s *Session, method string) func() {
		v, done := ask(s, method)
		if !v.Allowed() {
			t.Fatalf("%s: %s", method, v.Message())
		}
		return done
	}
	for name, c := range map[string]struct {
		methods []string
		over    bool
		to      string
		want    Action
	}{
		"the same rules":            {[]string{"GET", "PUT"}, false, both, Continue},
		"a request that is refused": {[]string{"GET", "PUT"}, false, get, End},
		"one that is over":          {[]string{"PUT"}, true, get, Continue},
		"one that stays allowed":    {[]string{"GET"}, false, get, Continue},
		"no rule any more":          {nil, false, "", End},
	} {
		s, step := Open(rulesOf(t, both), known, egress.TCP, guestAddr, netip.AddrPortFrom(webAddr, 80))
		if step.Action != Inspect {
			t.Fatal(step.Action)
		}
		for _, method := range c.methods {
			if done := request(s, method); c.over {
				done()
			}
		}
		if step = s.Revise(rulesOf(t, c.to)); step.Action != c.want {
			t.Errorf("%s: %s, want %s", name, step.Action, c.want)
		}
		// The new rules allow a GET, but not on a connection that they ended.
		if v, _ := ask(s, "GET"); v.Allowed() != (c.want == Continue) {
			t.Errorf("%s: then a GET: %s", name, v.Message())
		}
	}
	relayed, _ := Open(rulesOf(t, "[egress]\ndefault = \"public\"\n"), known, egress.TCP, guestAddr, netip.AddrPortFrom(webAddr, 443))
	if step := relayed.Dialed(nil); step.Action != Relay {
		t.Fatal(step.Action)
	}
	f := relayed.Judged().Flow
	f.Stage, f.App, f.Name, f.Method, f.Path = egress.StageRequest, egress.AppTLS, hostname.MustParse("web.example.com"), "GET", "/"
	if v, _ := relayed.Request(&f); v.Allowed() {
		t.Errorf("a request of a flow that nobody inspects: %s", v.Message())
	}
	if step := relayed.Revise(rulesOf(t, "[egress]\ndefault = \"public\"\n[tls]\ninspect = \"all\"\n")); step.Action != End {
		t.Errorf("a relayed flow that must be inspected: %s, want an end", step.Action)
	}
}

// TestI16_ProxiedAddressesAreTriedInTurn asks the explicit proxy for a name with several addresses.
func TestI16_ProxiedAddressesAreTriedInTurn(t *testing.T) {
	t.Parallel()
	rules := rulesOf(t, "[egress]\ndefault = \"public\"\n")
	s, _ := Open(rules, known, egress.TCP, guestAddr, netip.AddrPortFrom(gatewayAddr, ProxyPort))
	step := s.Data([]byte("CONNECT web.example.com:22 HTTP/1.1\r\n\r\n"), More)
	if step.Action != NeedNames || step.Name.String() != "web.example.com" {
		t.Fatalf("%+v", step)
	}
	step = s.Resolved([]netip.Addr{netip.MustParseAddr("10.0.0.1"), webAddr, netip.MustParseAddr("93.184.215.15")}, nil)
	if step.Action != Dial || len(step.Skipped) != 1 || step.Skipped[0].Verdict.Reason != egress.ReasonSpecialAddress {
		t.Fatalf("%+v", step)
	}
	if step = s.Dialed(errors.New("refused")); step.Action != Dial || s.Judged().Flow.Dst.Addr().String() != "93.184.215.15" {
		t.Fatalf("%+v", step)
	}
	if step = s.Dialed(errors.New("refused")); step.Action != Refuse || step.Refusal.status != 502 || step.Decided {
		t.Fatalf("%+v", step)
	}
	if len(step.Skipped) != 0 {
		t.Errorf("denials that were reported with the first address come again: %+v", step.Skipped)
	}
	if text := string(step.Refusal.Bytes()); !strings.Contains(text, `"reason":"upstream_refused"`) {
		t.Error(text)
	}
}

// TestI16_NamesNobodyAskedForOpenNothing gives addresses to a session that asked for no name, and to one that has ended.
func TestI16_NamesNobodyAskedForOpenNothing(t *testing.T) {
	t.Parallel()
	rules := rulesOf(t, "[egress]\ndefault = \"public\"\n")
	for request, refused := range map[string]bool{"": false, "CONNECT web.example.com:22 HTTP/1.1\r\n\r\n": true} {
		s, _ := Open(rules, known, egress.TCP, guestAddr, netip.AddrPortFrom(gatewayAddr, ProxyPort))
		if refused {
			s.Data([]byte(request), More)
			if step := s.Resolved(nil, errors.New("no such name")); step.Action != Refuse {
				t.Fatalf("%+v", step)
			}
		}
		if step := s.Resolved([]netip.Addr{webAddr}, nil); step.Action != Continue {
			t.Errorf("%q: %s, want %s", request, step.Action, Continue)
		}
	}
}

// TestI16_ProxyRequestsAreJudgedAsDialled has the explicit proxy asked for what a client might dial itself.
func TestI16_ProxyRequestsAreJudgedAsDialled(t *testing.T) {
	t.Parallel()
	other := hostname.MustParse("other.example.com")
	shared := pins{webAddr: {known[webAddr][0], other}}
	const tcp = "[[egress.allow]]\nhosts = [\"web.example.com\"]\nprotocol = \"tcp\"\nports = [22, 53]\n[[egress.deny]]\nhosts = [\"other.example.com\"]\n"
	for request, want := range map[string]Action{
		"CONNECT web.example.com:22":         Dial, // whatever else has its address
		"CONNECT other.example.com:22":       Refuse,
		"CONNECT web.example.com:53":         ToDNS,
		"CONNECT 93.184.215.14:53":           ToDNS,
		"GET http://web.example.com:53/":     Inspect, // no tunnel
		"GET http://other.example.com:8080/": Refuse,
	} {
		s, _ := Open(rulesOf(t, tcp), shared, egress.TCP, guestAddr, netip.AddrPortFrom(gatewayAddr, ProxyPort))
		_, host, _ := strings.Cut(strings.Replace(request, "http://", "", 1), " ")
		step := s.Data([]byte(request+" HTTP/1.1\r\nHost: "+strings.TrimSuffix(host, "/")+"\r\n\r\n"), More)
		if step.Action == NeedNames {
			step = s.Resolved([]netip.Addr{webAddr}, nil)
		}
		if step.Action != want {
			t.Errorf("%s: %s, want %s", request, step.Action, want)
		}
	}
	s, step := Open(rulesOf(t, tcp), known, egress.TCP, guestAddr, netip.AddrPortFrom(webAddr, ProxyPort))
	if s.Asks() || step.Action != Reject {
		t.Errorf("the proxy's port elsewhere: %s, want %s", step.Action, Reject)
	}
}

// TestI16_UnfinishedProxyRequestsAreDenied as soon as nothing more can come, those that can't be read with an answer that says so.
// What the session is asked for is known once all of it is read.
func TestI16_UnfinishedProxyRequestsAreDenied(t *testing.T) {
	t.Parallel()
	const half, whole, bad = "CONNECT web.exam", "CONNECT web.example.com:22 HTTP/1.1\r\n\r\n", "CONNECT web example:22 HTTP/1.1\r\n\r\n"
	for name, c := range map[string]struct {
		said   string
		end    Ending
		want   Action
		answer string
	}{
		"half, more may come": {half, More, NeedBytes, ""}, "half, silent": {half, Silent, Refuse, ""}, "half, gone": {half, Gone, Refuse, ""},
		"nothing": {"", Silent, Refuse, ""}, "whole": {whole, More, NeedNames, ""}, "unreadable": {bad, More, Refuse, "HTTP/1.1 400 "},
	} {
		s, _ := Open(rulesOf(t, webTLS), known, egress.TCP, guestAddr, netip.AddrPortFrom(gatewayAddr, ProxyPort))
		step := s.Data([]byte(c.said), c.end)
		request, _ := s.Proxied()
		refused := c.want == Refuse
		if step.Action != c.want || step.Decided != refused || !strings.HasPrefix(string(step.Refusal.Bytes()), c.answer) || (request != nil) != (c.want == NeedNames) {
			t.Errorf("%s: %s, decided %v, %q, request %v; want %s, %q", name, step.Action, step.Decided, step.Refusal.Bytes(), request, c.want, c.answer)
		}
		if reason := s.Judged().Verdict.Reason; refused && reason != egress.ReasonUnreadable || s.Asks() != (c.want == NeedBytes) {
			t.Errorf("%s: %s, asks %v", name, reason, s.Asks())
		}
		if refused {
			if again := s.Data([]byte(whole), More); again.Action != Continue {
				t.Errorf("%s: %s behind its end", name, again.Action)
			}
		}
	}
}

// TestRefusalsSpeakTheClientsProtocol: a TLS client gets an alert, one of HTTP an answer, any other nothing.
func TestRefusalsSpeakTheClientsProtocol(t *testing.T) {
	t.Parallel()
	rules := rulesOf(t, "[egress]\ndefault = \"public\"\n[[egress.deny]]\nhosts = [\"evil.example\"]\n")
	for said, want := range map[string]string{clientHello("evil.example"): "\x15\x03", "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n": "HTTP/1.1 403 "} {
		s, _ := Open(rules, pins{}, egress.TCP, guestAddr, netip.AddrPortFrom(webAddr, 443))
		if step := s.Data([]byte(said), More); step.Action != Refuse || !strings.HasPrefix(string(step.Refusal.Bytes()), want) {
			t.Errorf("%.10q: %s with %q, want %s with %q", said, step.Action, step.Refusal.Bytes(), Refuse, want)
		}
	}
	if s, step := Open(rules, pins{}, egress.ICMP, guestAddr, netip.AddrPortFrom(gatewayAddr, 0)); step.Action != Drop || step.Decided || s.Asks() {
		t.Errorf("a ping of the gateway: %s, decided %v; want %s, which the stack answers", step.Action, step.Decided, Drop)
	}
}

// TestI7_LookalikesAreNoProtocol: where a name is denied, bytes in which some server may find TLS or HTTP
// don't pass for another protocol.
func TestI7_LookalikesAreNoProtocol(t *testing.T) {
	t.Parallel()
	rules := rulesOf(t, "[egress]\ndefault = \"public\"\n[[egress.deny]]\nhosts = [\"evil.example\"]\n")
	for said, want := range map[string]Action{
		"\tGET / HTTP/1.1\r\n": Refuse, "\rGET": Refuse, "\nGET": Refuse, " GET": Refuse, "~~~~": Refuse, "\x80\x2e\x01": Refuse,
		"\x14\x03\x03": Refuse, "\x18\x03\x03": Refuse, // a change of ciphers and a heartbeat
		"\x08GET": Dial, "\x0eGET": Dial, "\x13\x03\x03": Dial, "\x19\x03\x03": Dial, "SSH-2.0-x\r\n": Dial,
	} {
		s, step := Open(rules, known, egress.TCP, guestAddr, netip.AddrPortFrom(webAddr, 443))
		if step.Action != NeedBytes {
			t.Fatal(step.Action)
		}
		if step = s.Data([]byte(said), Silent); step.Action != want {
			t.Errorf("%q: %s, want %s", said, step.Action, want)
		}
	}
}
