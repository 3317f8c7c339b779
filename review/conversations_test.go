package review_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/msb-project/msb/capture"
	"github.com/msb-project/msb/internal/pcapgen"
	"github.com/msb-project/msb/review"
)

// texts are what the lines of a conversation have names for.
var texts = map[string]string{
	"open": "GET /open/1" + goodHost + "\r\n", "shut": "GET /shut" + goodHost + "\r\n",
	"post":     "POST /open/2" + goodHost + "Content-Length: 30000\r\n\r\n" + strings.Repeat("b", 30000),
	"override": "POST /open/1" + goodHost + "X-HTTP-Method-Override: DELETE\r\n\r\n",
	"connect":  "CONNECT good.example:443 HTTP/1.1\r\n\r\n", "late": "CONNECT late.example:9 HTTP/1.1\r\n\r\n",
	"established": "HTTP/1.1 200 Connection established\r\n\r\n",
	"address":     "GET / HTTP/1.1\r\nHost: 93.184.215.14\r\n\r\n", "half": "GET /open/1" + goodHost, "rest": "\r\n",
	"hello": clientHello("good.example"), "half-hello": clientHello("good.example")[:30],
}

// number is a sequence number: terms that are added, texts among them as their lengths.
func number(t *testing.T, expression string) (n uint32) {
	t.Helper()
	for term := range strings.SplitSeq(expression, "+") {
		if text, ok := texts[term]; ok {
			n += uint32(len(text))
			continue
		}
		v, err := strconv.ParseUint(term, 10, 32)
		if err != nil {
			t.Fatalf("%s: %v", expression, err)
		}
		n += uint32(v)
	}
	return n
}

// converse writes a capture of what a guest and servers say, a frame for each line: > of the guest, < of the gateway, with the
// server's port, an = for another server, an @ for the gateway's proxy and a ' for another of the guest's ports; its flags, its number, the number that it acknowledges, a text by its name or
// quoted. +DURATION is a pause before the frame, #TEXT a comment on it. A line of names
// is a name record; one that begins with ask has a DNS query in place of a segment.
func converse(t *testing.T, snap int, lines string) []byte {
	t.Helper()
	l := newLinkWith(capture.Options{SnapLen: snap})
	var pauses []time.Duration // before each frame
	for line := range strings.SplitSeq(strings.TrimSpace(lines), "\n") {
		words := strings.Fields(line)
		if words[0] == "names" {
			l.w.Names(words[1], []netip.Addr{netip.MustParseAddr(words[2])})
			continue
		}
		var flags byte
		for _, flag := range words[1] {
			flags |= map[rune]byte{'S': capture.SYN, 'A': capture.ACK, 'F': capture.FIN, 'R': capture.RST, '0': 0}[flag]
		}
		text, comment, scale, pause := "", "", byte(14), time.Millisecond
		for _, word := range words[4:] {
			switch named, ok := texts[word]; {
			case ok:
				text += named
			case word[0] == '#':
				comment = strings.ReplaceAll(word[1:], "~", " ")
			case word[0] == '+':
				pause, _ = time.ParseDuration(word[1:])
			case word == "narrow":
				scale = 0
			default:
				unquoted, err := strconv.Unquote(word)
				if err != nil {
					t.Fatalf("%s: %s: %v", line, word, err)
				}
				text += unquoted
			}
		}
		port, options := uint16(80), ""
		if digits := strings.Trim(words[0], "<>='@ask"); digits != "" {
			port = uint16(number(t, digits))
		}
		if flags == capture.SYN|capture.ACK {
			options = string([]byte{3, 3, scale, 0})
		}
		from := uint16(40000)
		if strings.Contains(words[0], "'") {
			from += 1024
		}
		f := segmentTo(port, from, flags, number(t, words[2]), options+text)
		f[14+20+12] += byte(len(options)) << 2
		binary.BigEndian.PutUint32(f[14+20+8:], number(t, words[3]))
		switch {
		case strings.Contains(words[0], "="):
			f[33]++
		case strings.Contains(words[0], "@"):
			copy(f[30:34], []byte{192, 168, 127, 1})
			f[36], f[37] = 3128>>8, 3128&255
		}
		direction := capture.FromGuest
		if strings.Contains(words[0], "<") {
			f, direction = answered(f), capture.ToGuest
		}
		if words[0] == "ask" {
			f = question(1)
		}
		l.w.Packet(direction, f, comment)
		pauses = append(pauses, pause)
	}
	if err := l.w.Close(); err != nil {
		t.Fatal(err)
	}
	const packet, timeAt = 6, 12
	le, file, now := binary.LittleEndian, l.out.Bytes(), uint64(1_800_000_000e9)
	for at := 0; at < len(file); at += int(le.Uint32(file[at+4:])) {
		if le.Uint32(file[at:]) == packet {
			now += uint64(pauses[0])
			pauses = pauses[1:]
			le.PutUint32(file[at+timeAt:], uint32(now>>32))
			le.PutUint32(file[at+timeAt+4:], uint32(now))
		}
	}
	return file
}

// outcome is what a report says of a conversation: its flows, then their requests.
func outcome(r *review.Report) string {
	var all []string
	for f := range r.Flows() {
		text := fmt.Sprint(f.ID, ":", f.Packets)
		if lasted := f.End.Sub(f.Start).Round(time.Second); lasted > 0 {
			text += " for " + lasted.String()
		}
		if f.Verdict != nil {
			text += " " + strings.TrimSpace(f.Verdict.Action+" "+f.Verdict.Reason)
		}
		if f.Against != nil {
			text += " or " + f.Against.Action
		}
		if f.Cut {
			text += " cut"
		}
		if f.Recorded != nil {
			text += " was " + f.Recorded.Action
		}
		all = append(all, text)
	}
	for _, q := range r.Requests {
		what := q.Path
		if q.Unfollowed {
			what = "?"
		}
		if what = fmt.Sprint(q.Flow, " ", what, " ", q.Verdict.Action); q.Against != nil {
			what += " or " + q.Against.Action
		}
		if q.Recorded != nil {
			what += " was " + q.Recorded.Action
		}
		all = append(all, what)
	}
	return strings.Join(all, ", ")
}

// byName judges good.example's requests from the start, byBytes looks at what a client says first.
const (
	byName  = followPolicy
	byBytes = "[egress]\ndefault = \"public\"\n[[egress.deny]]\nhosts = [\"evil.example\"]\n"
)

const handshake = "> S 999 0\n< SA 0 1000\n> A 1000 1\n"

// TestI16_ConversationsAreReviewed has what segments do to a connection beside the common ways of TCP: RFC 9293 and what
// gVisor does say what the gateway made of them.
func TestI16_ConversationsAreReviewed(t *testing.T) {
	t.Parallel()
	const (
		inspected = " inspect needs_request"
		unsaid    = " undecided needs_name cut"
		asked     = "#msb~http=1~action=allow~scheme=http"
		denied    = "#msb~flow=1~action=deny~reason=no_rule"
	)
	for name, c := range map[string]struct {
		policy, against string
		snap            int
		classic         bool
		lines, want     string
	}{
		"a stray segment without an acknowledgement, whose reset has the answer's numbers": {
			policy: byName, lines: "> S 999 0\n> 0 999 0 \"x\"\n< SA 0 1000\n> A 1000 1 open", want: "1:4" + inspected + ", 1 /open/1 allow",
		},
		"an answer to another SYN than the one that waits": {
			policy: byName, lines: handshake + "> S 5000 0 " + denied + "\n< SA 7000 7001", want: "1:4" + inspected + " was deny, 2:1" + inspected,
		},
		"the same SYN, answered again": {
			policy: byName, lines: handshake + "> S 999 0\n< SA 0 1000\n> A 1000 1 open", want: "1:6" + inspected + ", 1 /open/1 allow",
		},
		"another SYN, answered with the same number": {
			policy: byName, lines: handshake + "> S 5999 0\n< SA 0 6000\n> A 6000 1 shut", want: "1:3" + inspected + ", 2:3" + inspected + ", 2 /shut deny",
		},
		"a reset that acknowledges another SYN than the one that waits": {
			policy: byName, lines: handshake + "> S 5000 0 " + denied + "\n< RA 0 1234\n> A 1000 1 open", want: "1:6" + inspected + " was deny",
		},
		"a reset before the answer that acknowledges another SYN": {
			policy: byName, lines: "> S 999 0\n< RA 0 555\n< SA 0 1000\n> A 1000 1 open", want: "1:4" + inspected + ", 1 /open/1 allow",
		},
		"a reset before the answer that acknowledges nothing": {
			policy: byName, lines: "> S 999 0\n< R 5 0\n< SA 0 1000\n> A 1000 1 open", want: "1:4" + inspected + ", 1 /open/1 allow",
		},
		"refused, then tried again": {
			policy: byName, lines: "> S 999 0\n< RA 0 1000\n> S 999 0\n< SA 0 1000\n> A 1000 1 open",
			want: "1:2" + inspected + ", 2:3" + inspected + ", 2 /open/1 allow",
		},
		"another SYN in the window of the handshake": {
			policy: byBytes, lines: "> S 999 0\n< SA 0 1000\n> S 1004 0\n< RA 0 1005\n> A 1000 1 open", want: "1:5 deny unreadable",
		},
		"two servers, two of the guest's ports": {
			policy: byName, lines: "> S 999 0\n>= S 999 0\n<= SA 0 1000\n< SA 0 1000\n>= A 1000 1\n> A 1000 1 open\n<= A 1 1000\n< A 1 1000\n" +
				">' S 999 0\n<' SA 0 1000\n> A 1000+open 1 shut\n<' A 1 1000\n< A 1 1000",
			want: "1:6" + inspected + ", 2:4 deny no_rule, 3:3" + inspected + ", 1 /open/1 allow, 1 /shut deny",
		},
		"a segment that completes the handshake": {policy: byBytes, lines: "> S 999 0\n< SA 0 1000\n> A 1000 1 open", want: "1:3" + unsaid},
		"the same, acknowledged": {
			policy: byBytes, lines: "> S 999 0\n< SA 0 1000\n> A 1000 1 open\n< A 1 1000+open", want: "1:4" + inspected + ", 1 /open/1 allow",
		},
		"the same, acknowledged in part": {
			policy: byBytes, lines: "> S 999 0\n< SA 0 1000\n> A 1000 1 open\n< A 1 1010", want: "1:4" + unsaid,
		},
		"a segment behind the window": {
			policy: byBytes, lines: "> S 999 0\n< SA 0 1000 narrow\n> A 1000 1\n> A 71000 1 \"x\"\n> A 1000 1 open", want: "1:5" + unsaid,
		},
		"a segment behind the window of requests": {
			policy: byName, lines: "> S 999 0\n< SA 0 1000 narrow\n> A 1000 1\n> A 71000 1 \"x\"\n> A 1000 1 open", want: "1:5" + inspected + ", 1 ? undecided",
		},
		"a pause that one of two policies waits for": {
			policy: byName, against: byBytes, lines: handshake + "> A 1000 1 open +12s", want: "1:4 for 12s" + inspected + " or allow, 1 /open/1 allow or allow",
		},
		"half a head, then a reset of the gateway's": {policy: byBytes, lines: handshake + "> A 1000 1 half\n< R 1 0", want: "1:5" + unsaid},
		"the same behind a pause":                    {policy: byBytes, lines: handshake + "> A 1000 1 half\n< R 1 0 +12s", want: "1:5 for 12s deny unreadable"},
		"a SYN behind a gap": {
			policy: byBytes, classic: true, lines: "> S 999 0\n> A 1000 1\n> A 1010 1 \"x\"\n> S 5999 0", want: "1:3" + unsaid + ", 2:1" + unsaid,
		},
		"a SYN on a connection whose client says nothing": {policy: byBytes, classic: true, lines: handshake + "> S 5999 0", want: "1:4" + unsaid},
		"a SYN on a connection that the server has ended": {
			policy: byBytes, classic: true, lines: handshake + "> A 1000 1 address\n< FA 1 1000+address\n< A 2 1000+address\n> S 5999 0", want: "1:6" + inspected + ", 2:1" + unsaid + ", 1 / allow",
		},
		"the guest's side alone": {policy: byBytes, lines: "> S 999 0\n> A 1000 1 open", want: "1:2" + unsaid},
		"the guest's side alone, twice, without directions": {
			policy: byBytes, classic: true, lines: "> S 999 0\n> A 1000 1 address\n>' S 999 0\n>' A 1000 1 address",
			want: "1:2" + inspected + ", 2:2" + inspected + ", 1 / allow, 2 / allow",
		},
		"the guest's side alone, behind another connection": {
			policy: byBytes, lines: handshake + "> A 1000 1 open\n>' S 999 0\n>' A 1000 1 open", want: "1:4" + inspected + ", 2:2" + unsaid + ", 1 /open/1 allow",
		},
		"a beginning that is missing": {policy: byBytes, classic: true, lines: "> A 1 1 address", want: "1:1" + unsaid},
		"what came before the answer, without directions": {
			policy: byBytes, classic: true, lines: "> S 999 0\n> A 1000 1 half\n< SA 0 1000\n> A 1000 1\n> A 1000 1 address", want: "1:5" + inspected + ", 1 / allow",
		},
		"answers between requests, without directions": {
			policy: byBytes, classic: true, lines: handshake + "> A 1000 1 address\n< A 1 1000+address \"HTTP/1.1\"\n> A 1000+address 9 address",
			want: "1:6" + inspected + ", 1 / allow, 1 / allow",
		},
		"a reset of a connection without requests, without directions": {
			policy: byBytes, classic: true, lines: ">9 S 999 0\n<9 SA 0 1000\n>9 A 1000 1\n>9 R 1000 0 +3s", want: "1:4 for 3s allow default_public",
		},
		"HTTP where TLS is to be": {
			policy: strings.Replace(byName, "\"http\"\nmethods = [\"GET\", \"POST\"]\npaths = [\"/open/**\"]", "\"tls\"", 1),
			lines:  handshake + "> A 1000 1 open", want: "1:4 deny protocol_mismatch",
		},
		"a gap in a connection without requests": {
			policy: byBytes, lines: ">443 S 999 0\n<443 SA 0 1000\n>443 A 1000 1\n>443 A 1000 1 hello\n>443 A 1010+hello 1 hello", want: "1:5 allow default_public",
		},
		"a reset that the client's segments asked for": {
			policy: byName, lines: handshake + "> A 1000 1 open\n< R 1 0\n> A 1000+open 1 shut", want: "1:6" + inspected + ", 1 /open/1 allow",
		},
		"TCP to the port of DHCP": {policy: byName, lines: ">67 S 999 0", want: "1:1 deny port_not_allowed"},
		"a server that speaks first behind the proxy": {
			policy: byBytes, lines: ">@ S 999 0\n<@ SA 0 1000\n>@ A 1000 1\n>@ A 1000 1 connect\n<@ A 1 1000+connect established\n<@ A 1+established 1000+connect \"220\"\n" +
				">@ A 1000+connect 1 hello",
			want: "1:7 allow default_public",
		},
		"a client that ends its side before the proxy's answer": {
			policy: byBytes, lines: ">@ S 999 0\n<@ SA 0 1000\n>@ A 1000 1\n>@ AF 1000 1 late\nnames late.example 93.184.215.14\n<@ A 1 1001+late established",
			want: "1:5 allow default_public",
		},
		"a name behind the proxy that may not have its address": {
			policy: "[[egress.allow]]\nhosts = [\"late.example\"]\nports = [9]\nprotocol = \"tcp\"\n",
			lines:  ">@ S 999 0\n<@ SA 0 1000\n>@ A 1000 1\n>@ A 1000 1 late\nnames late.example 10.0.0.5\n<@ A 1 1000+late \"HTTP/1.1\"", want: "1:5 deny rebinding",
		},
		"a request to the proxy without its end": {
			policy: byBytes, snap: 54 + 10, lines: ">@ S 999 0\n<@ SA 0 1000\n>@ A 1000 1\n>@ A 1000 1 connect\n>@ A 1010 1 \"\\r\\n\\r\\n\"\n<@ A 1 1000 established", want: "1:6 undecided none cut",
		},
		"a SYN before the handshake's end, without directions": {
			policy: byBytes, classic: true, lines: "> S 999 0\n< SA 0 1000\n> S 5999 0", want: "1:2 allow default_public, 2:1" + unsaid,
		},
		"a SYN behind the end of a request to the proxy": {
			policy: byBytes, classic: true, lines: ">@ S 999 0\n<@ SA 0 1000\n>@ A 1000 1\n>@ AF 1000 1 connect\n>@ S 5999 0", want: "1:4 undecided none cut, 2:1 undecided none cut",
		},
		"a recorded name of a request to the proxy that has no beginning": {
			policy: byBytes, lines: ">@ A 1000 1 connect #msb~dns=1~action=deny~reason=no_rule~name=good.example", want: "1:1 undecided none cut was deny",
		},
		"a comment on the second request": {
			policy: byName, lines: handshake + "> A 1000 1 open\n> A 1000+open 1 shut " + asked + "~method=GET~path=/shut", want: "1:5" + inspected + ", 1 /open/1 allow, 1 /shut deny was allow",
		},
		"a comment without a path": {policy: byName, lines: handshake + "> A 1000 1 open " + asked + "~method=GET", want: "1:4" + inspected + ", 1 /open/1 allow was allow"},
		"comments on two requests that are alike": {
			policy: byName, lines: handshake + "> A 1000 1 open " + asked + "~method=GET~path=/open/1\n> A 1000+open 1 open " + asked + "~method=GET~path=/open/1",
			want: "1:5" + inspected + ", 1 /open/1 allow was allow, 1 /open/1 allow was allow",
		},
		"a comment on another method": {policy: byName, lines: handshake + "> A 1000 1 open " + asked + "~method=HEAD~path=/open/1~name=good.example", want: "1:4" + inspected + ", 1 /open/1 allow, 1 /open/1 deny was allow"},
		"a comment on a query":        {policy: byName, lines: "ask S 0 0 #msb~dns=1~action=deny~reason=no_rule~name=a.example", want: "1:1"},
		"a comment on HTTP where TLS is to be": {
			policy: strings.Replace(byName, "\"http\"\nmethods = [\"GET\", \"POST\"]\npaths = [\"/open/**\"]", "\"tls\"", 1),
			lines:  "> S 999 0 " + asked + "~method=GET~path=/open/1~name=good.example", want: "1:1 undecided needs_name cut, 1 /open/1 deny was allow",
		},
		"a comment on another host":      {policy: byName, lines: handshake + "> A 1000 1 open " + asked + "~method=GET~path=/open/1~name=other.example", want: "1:4" + inspected + ", 1 /open/1 allow, 1 /open/1 deny was allow"},
		"a comment on another path":      {policy: byName, lines: handshake + "> A 1000 1 open " + asked + "~method=GET~path=/open/2~name=good.example", want: "1:4" + inspected + ", 1 /open/1 allow, 1 /open/2 allow was allow"},
		"a comment on a header's method": {policy: byName, lines: handshake + "> A 1000 1 override " + asked + "~method=DELETE~path=/open/1", want: "1:4" + inspected + ", 1 /open/1 deny was allow"},
		"half a head":                    {policy: byName, lines: handshake + "> A 1000 1 half", want: "1:4" + inspected},
		"half a head, then a FIN":        {policy: byName, lines: handshake + "> A 1000 1 half\n> AF 1000+half 1", want: "1:5" + inspected + ", 1  deny"},
		"a FIN behind a whole head":      {policy: byName, lines: handshake + "> A 1000 1 open\n> AF 1000+open 1", want: "1:5" + inspected + ", 1 /open/1 allow"},
		"a guest that answers twice":     {policy: byName, lines: "< S 500 0\n> SA 100 501\n> SA 200 501\n< A 501 101", want: "1:4"},
		"frames without their ends":      {policy: byBytes, snap: 54 + 10, lines: handshake + "> A 1000 1 open\n> A 1010 1 \"\\r\\n\\r\\n\"", want: "1:5" + unsaid},
		"a frame without its end before the answer": {
			policy: byBytes, snap: 54 + 50, lines: "> S 999 0\n> A 1000 1 open open\n< SA 0 1000\n> A 1000 1\n> A 1000 1 open", want: "1:5" + inspected + ", 1 /open/1 allow",
		},
		"a segment larger than what decides": {
			policy: byBytes, lines: handshake + "> AF 1000 1 post shut", want: "1:4" + inspected + ", 1 /open/2 allow, 1 /shut allow",
		},
		"half a head, the rest behind a pause": {policy: byBytes, lines: handshake + "> A 1000 1 half\n> A 1000+half 1 rest +12s", want: "1:5 for 12s deny unreadable"},
		"a head that takes too long in small parts": {
			policy: byBytes, lines: handshake + "> A 1000 1 half\n> A 1000+half 1 \"X\" +6s\n> A 1001+half 1 \":\\r\\n\\r\\n\" +6s", want: "1:6 for 12s deny unreadable",
		},
		"frames without their ends, behind what decides": {
			policy: byBytes, snap: 54 + 50, lines: handshake + "> A 1000 1 open open", want: "1:4" + inspected + ", 1 /open/1 allow, 1 ? undecided",
		},
	} {
		file := converse(t, c.snap, c.lines)
		if c.classic {
			file = classic(t, file, 1<<16)
		}
		o := review.Options{Policy: policy(t, c.policy)}
		if c.against != "" {
			o.Against = policy(t, c.against)
		}
		if got := outcome(read(t, file, o)); got != c.want {
			t.Errorf("%s:\n%s, want\n%s", name, got, c.want)
		}
	}
}

// TestReportsShowConversations holds the table, the summary, the page and the counts of a conversation against a file that was
// read by people.
func TestReportsShowConversations(t *testing.T) {
	t.Parallel()
	const rules = byName + "[[egress.allow]]\nname = \"site\"\nhosts = [\"good.example\"]\nports = [443]\nprotocol = \"tls\"\n"
	const lines = `ask S 0 0 #msb~dns=1~action=allow~reason=rule~name=a.example
ask S 0 0
> S 999 0 #msb~flow=1~action=inspect~rule=api~reason=needs_request
< SA 0 1000
> A 1000 1
> A 1000 1 open #msb~http=1~action=allow~rule=api~reason=rule~name=good.example~scheme=http~method=GET~path="/open/1"
< A 1 1000+open established established established
> A 1000+open 58 shut #msb~http=1~action=allow~rule=api~reason=rule~name=good.example~scheme=http~method=GET~path="/shut"
> A 1010+open+shut 1 open
>443 S 999 0 +1s #msb~flow=2~action=deny~reason=no_rule
<443 SA 0 1000
>443 A 1000 1
>443 A 1000 1 hello
>443 A 1000+hello 1 hello hello hello
<443 A 1 1000+hello hello
>=9 S 999 0 +2s
>443' S 999 0
<443' SA 0 1000
>443' A 1000 1
>443' A 1000 1 half-hello
>' S 999 0
<' SA 0 1000
>' A 1000 1
>' A 1010 1 open
>=9' S 999 0 +500ms #msb~flow=4~action=allow~reason=rule~would_deny=true
< FA 1 1000`
	for name, o := range map[string]review.Options{
		"recorded": {Policy: policy(t, rules)}, "against": {Policy: policy(t, rules), Against: policy(t, byBytes)},
		"report": {Policy: policy(t, "[egress]\nmode = \"report\"\n")},
	} {
		r := read(t, converse(t, 0, lines), o)
		if name == "against" { // what no conversation shows
			r.Other, r.Lost, r.MoreRequests, r.LostVerdicts = 3, 2, 4, 5
			r.Dropped = map[string]int64{"multicast": 7, "source_ip": 6, "source_mac": 1}
			r.Guarded = map[string]int64{"multicast": 9, "source_mac": 8, "ip_options": 8, "source_ip": 11}
			r.Damage = []review.Damage{{File: "x.pcapng", Err: os.ErrPermission}, {File: "y", Err: review.ErrEmpty}}
		}
		var b, all strings.Builder
		if err := r.WriteJSON(&all); err != nil {
			t.Fatal(err)
		}
		head, _, _ := strings.Cut(all.String(), "\"lookups\"")
		_, tail, _ := strings.Cut(all.String(), "\"more_requests\"")
		fmt.Fprintln(&b, head+tail)
		for _, line := range r.Summary() {
			fmt.Fprintln(&b, line)
		}
		for _, c := range []review.Condition{review.IsChanged, review.Loosened, review.Tightened, review.Denied, review.IsUndecided, review.Unreadable} {
			fmt.Fprintln(&b, c, r.Count(c))
		}
		if err := r.WriteTable(&b, false); err != nil {
			t.Fatal(err)
		}
		b.WriteString("what changed:\n")
		if err := r.WriteTable(&b, true); err != nil {
			t.Fatal(err)
		}
		var page strings.Builder
		if err := r.WriteHTML(&page, "a conversation"); err != nil {
			t.Fatal(err)
		}
		for line := range strings.SplitSeq(page.String(), "\n") {
			if strings.HasPrefix(line, "<tbody>") || strings.Contains(line, "<rect ") || strings.Contains(line, "<g>") {
				fmt.Fprintln(&b, strings.NewReplacer("<tbody>", "", "</tr>", "\n", "</tbody></table>", "", "</tbody>", "").Replace(line))
			}
		}
		golden(t, filepath.Join("testdata", "conversation-"+name+".txt"), []byte(b.String()))
	}
}

// TestFramesBesideFlows: what the stack itself answers is of no flow or not judged, and datagrams are of no connection with the
// same ends.
func TestFramesBesideFlows(t *testing.T) {
	t.Parallel()
	dhcp := append(packet(17, 8), 0, 68, 0, 67, 0, 8, 0, 0)
	copy(dhcp, "\xff\xff\xff\xff\xff\xff")
	copy(dhcp[26:], "\x00\x00\x00\x00\xff\xff\xff\xff")
	ping := append(packet(1, 8), 8, 0, 0, 0, 0, 1, 0, 1)
	copy(ping[30:], []byte{192, 168, 127, 1})
	data := segmentTo(53, 0x9000, capture.ACK, 1000, "")
	unreachable := append(answered(append(packet(1, 8+len(data[14:])), 0, 0, 0, 0))[:34], 3, 1, 0, 0, 0, 0, 0, 0)
	unreachable = append(unreachable, data[14:]...) // an ICMP error about it
	l := newLink()
	arp := func(target ...byte) []byte {
		f := append(append(bytes.Repeat([]byte{255}, 6), pcapgen.GuestMAC...), 8, 6, 0, 1, 8, 0, 6, 4, 0, 1)
		f = append(append(append(f, pcapgen.GuestMAC...), pcapgen.Guest4.AsSlice()...), 0, 0, 0, 0, 0, 0)
		return append(f, target...)
	}
	for _, f := range [][]byte{arp(192, 168, 127, 1), arp(192, 168, 127, 2), dhcp, ping, segmentTo(53, 0x9000, capture.SYN, 999, ""), data, unreachable, question(28), question(1)} {
		l.w.Packet(directionOf(f), f, "")
	}
	r := l.review(t)
	if got, want := outcome(r), "1:1, 2:2, 3:2"; got != want || r.Other != 3 || len(r.Guarded) != 0 || len(r.Lookups) != 2 || r.Lookups[0].Type != "A" {
		t.Errorf("%s, %d other frames, %d names; want %s, 3, 2", got, r.Other, len(r.Lookups), want)
	}
}

// TestI11_ConnectionsBeyondTheBoundsAreUndecided: of clients that say nothing for long, of SYNs that wait for their answers and of
// stray segments, only so many are kept. No recorded verdict is lost.
func TestI11_ConnectionsBeyondTheBoundsAreUndecided(t *testing.T) {
	t.Parallel()
	const waiting, beyond = 16_384, 6
	l := newLink()
	for i := range uint16(waiting + beyond) {
		l.tcp(10_000+i, capture.SYN, 999, "")
	}
	for i := range uint16(waiting + beyond) {
		l.w.Packet(capture.FromGuest, segment(10_000+i, capture.ACK, 1000, texts["open"]), "")
	}
	if err := l.w.Close(); err != nil {
		t.Fatal(err)
	}
	if n := read(t, l.out.Bytes(), review.Options{Policy: policy(t, byBytes)}).Count(review.IsUndecided); n != beyond {
		t.Errorf("%d connections are undecided, want %d", n, beyond)
	}

	const again, strays = 4096, 64
	l = newLink()
	for i := range uint16(again + beyond) {
		l.tcp(10_000+i, capture.SYN, 999, "")
		l.w.Packet(capture.FromGuest, segment(10_000+i, capture.SYN, 5999, ""), "msb flow=1 action=deny reason=no_rule")
	}
	r := l.review(t)
	for f := range r.Flows() {
		if f.Recorded == nil {
			t.Fatalf("flow %d has lost its recorded verdict", f.ID)
		}
	}

	l = newLink()
	for i := range uint16(again + beyond) {
		n := uint32(1)
		if i == 0 {
			n = strays + 1
		}
		l.w.Packet(capture.FromGuest, segment(10_000+i, capture.SYN, 999, ""), "")
		for k := range n {
			l.w.Packet(capture.FromGuest, segment(10_000+i, 0, 70_000+k, ""), "")
		}
	}
	for i := range uint16(again + beyond) {
		n := uint32(1)
		if i == 1 { // of one that is kept
			n = 0
		}
		l.w.Packet(capture.ToGuest, accepts(80, 10_000+i, 999), "")
		for k := range n {
			f := answered(segment(10_000+i, capture.RST|capture.ACK, 0, ""))
			binary.BigEndian.PutUint32(f[14+20+8:], 70_000+k)
			l.w.Packet(capture.ToGuest, f, "")
		}
		if i == 0 {
			f := answered(segment(10_000, capture.RST|capture.ACK, 0, ""))
			binary.BigEndian.PutUint32(f[14+20+8:], 70_000+strays)
			l.w.Packet(capture.ToGuest, f, "")
		}
		l.w.Packet(capture.FromGuest, segment(10_000+i, capture.ACK, 1000, ""), "")
		l.w.Packet(capture.FromGuest, segment(10_000+i, capture.ACK, 1000, texts["open"]), "")
	}
	if n := len(l.review(t).Requests); n != again-1 {
		t.Errorf("%d connections withstood their stray resets, want %d", n, again-1)
	}
}

// TestI16_QuestionsOverTCPAreRead wherever a segment ends, and in captures that begin late. Unfinished ones are bounded: those of
// connections that ended go first.
func TestI16_QuestionsOverTCPAreRead(t *testing.T) {
	t.Parallel()
	ask := question(1)[14+20+8:]
	ask = append([]byte{0, byte(len(ask))}, ask...)
	text := string(ask) + string(ask) + string(ask)
	to := func(port uint16, flags byte, seq uint32, text string) []byte {
		return segmentTo(53, port, flags, seq, text)
	}
	count := func(file []byte) (n int64) {
		for _, l := range read(t, file, review.Options{Policy: policy(t, "")}).Lookups {
			if l.Name == "a.example" {
				n += l.Count
			}
		}
		return n
	}
	for cut := 1; cut < len(text); cut++ {
		for kind := range 3 {
			l := newLink()
			if kind > 0 {
				l.w.Packet(capture.FromGuest, to(40000, capture.SYN, 999, ""), "")
			}
			if kind == 1 {
				l.w.Packet(capture.ToGuest, accepts(53, 40000, 999), "")
			}
			if kind < 2 {
				l.w.Packet(capture.FromGuest, to(40000, capture.ACK, 1000, ""), "")
			}
			l.w.Packet(capture.FromGuest, to(40000, capture.ACK, 1000, text[:cut]), "")
			l.w.Packet(capture.FromGuest, to(40000, capture.ACK, 1000+uint32(cut), text[cut:]), "")
			if err := l.w.Close(); err != nil {
				t.Fatal(err)
			}
			file := l.out.Bytes()
			if kind == 2 { // the guest's side alone
				file = classic(t, file, 1<<16)
			}
			if n := count(file); n != 3 {
				t.Fatalf("kind %d, cut at %d: %d questions", kind, cut, n)
			}
		}
	}
	for ended, want := range map[byte]int64{capture.FIN: 2, capture.RST: 2, 0: 1} {
		l := newLink()
		for i := range uint16(4097) {
			l.w.Packet(capture.FromGuest, to(10_000+i, capture.SYN, 999, ""), "")
			l.w.Packet(capture.ToGuest, accepts(53, 10_000+i, 999), "")
			l.w.Packet(capture.FromGuest, to(10_000+i, capture.ACK, 1000, ""), "")
			switch {
			case i == 0:
				l.w.Packet(capture.FromGuest, to(10_000, capture.ACK, 1000, string(ask[:5])), "")
			case i < 4096:
				l.w.Packet(capture.FromGuest, to(10_000+i, capture.ACK|ended, 1000, ""), "")
			}
		}
		l.w.Packet(capture.FromGuest, to(10_000, capture.ACK, 1005, string(ask[5:])), "")
		l.w.Packet(capture.FromGuest, to(10_000+4096, capture.ACK, 1000, string(ask)), "")
		if err := l.w.Close(); err != nil {
			t.Fatal(err)
		}
		if n := count(l.out.Bytes()); n != want {
			t.Errorf("connections end by %#x: %d questions, want %d", ended, n, want)
		}
	}
}

// TestLearningTakesTheNameThatWasSaid: an address may be that of many names, and a header may ask for a method.
func TestLearningTakesTheNameThatWasSaid(t *testing.T) {
	t.Parallel()
	const named = "names other.example 93.184.215.14\n"
	for lines, want := range map[string]string{
		named + ">443 S 999 0\n<443 SA 0 1000\n>443 A 1000 1\n>443 A 1000 1 hello": "hosts = [\"good.example\"]",
		named + handshake + "> A 1000 1 override":                                  "methods = [\"DELETE\", \"POST\"]",
	} {
		learned := string(read(t, converse(t, 0, lines), review.Options{Policy: policy(t, byBytes), Learn: true}).Learned())
		if !strings.Contains(learned, want) || strings.Contains(learned, "other.example") {
			t.Errorf("%s: learned\n%s\nwant %s and not other.example", lines, learned, want)
		}
	}
}

// TestRecordedVerdictsOfAnyKindCount: a capture may hold those of names or of requests alone.
func TestRecordedVerdictsOfAnyKindCount(t *testing.T) {
	t.Parallel()
	for comment, want := range map[string]bool{"": false, " #msb~dns=1~action=deny~name=a.example": true, " #msb~http=1~action=deny~method=GET~path=/": true} {
		lines := "ask S 0 0" + comment
		if strings.Contains(comment, "http") {
			lines = "> S 999 0" + comment
		}
		if got := read(t, converse(t, 0, lines), review.Options{Policy: policy(t, byName)}).HasRecorded(); got != want {
			t.Errorf("%q: %v, want %v", comment, got, want)
		}
	}
}

// failing is a writer that fails after some writes.
type failing struct{ left int }

func (w *failing) Write(p []byte) (int, error) {
	if w.left--; w.left < 0 {
		return 0, errors.New("the disk is full")
	}
	return len(p), nil
}

// TestReportsThatCantBeWrittenAreErrors wherever the disk is full. The table names what was asked of the proxy.
func TestReportsThatCantBeWrittenAreErrors(t *testing.T) {
	t.Parallel()
	r := read(t, converse(t, 0, ">@ S 999 0\n<@ SA 0 1000\n>@ A 1000 1\n>@ A 1000 1 connect\n<@ A 1 1000+connect established"), review.Options{Policy: policy(t, byName)})
	for i := range 3 {
		if r.WriteJSON(&failing{i}) == nil {
			t.Errorf("JSON was written in %d writes", i)
		}
	}
	if r.WriteTable(&failing{}, false) == nil || r.WriteHTML(&failing{}, "") == nil {
		t.Error("a table or a page was written to nothing")
	}
	if rows := r.Rows(false); rows[len(rows)-1][2] != "good.example:443 by proxy" {
		t.Errorf("rows: %q", rows)
	}
}
