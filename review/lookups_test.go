package review_test

import (
	"testing"

	"github.com/miekg/dns"

	"github.com/msb-project/msb/capture"
	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/review"
)

// TestI5_QuestionsHideNoRefusedAnswer: an answer was refused for its addresses. A guest that asks for the name once more,
// and leaves before the answer comes, doesn't have the name reported as allowed.
func TestI5_QuestionsHideNoRefusedAnswer(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]egress.Reason{"10.0.0.5": egress.ReasonRebinding, "93.184.215.14": egress.ReasonRule} {
		query := question(dns.TypeA)
		msg := new(dns.Msg)
		if err := msg.Unpack(query[14+20+8:]); err != nil {
			t.Fatal(err)
		}
		rr, err := dns.NewRR("a.example. 60 IN A " + address)
		if err != nil {
			t.Fatal(err)
		}
		msg.Response, msg.Answer = true, []dns.RR{rr}
		body, err := msg.Pack()
		if err != nil {
			t.Fatal(err)
		}
		reply := append(packet(17, 8+len(body)), query[14+20:14+20+4]...)
		reply = append(append(reply, 0, byte(8+len(body)), 0, 0), body...)
		l := newLink()
		l.w.Packet(capture.FromGuest, query, "")
		l.w.Packet(capture.ToGuest, answered(reply), "")
		l.w.Packet(capture.FromGuest, query, "")
		if err := l.w.Close(); err != nil {
			t.Fatal(err)
		}
		r := read(t, l.out.Bytes(), review.Options{Policy: policy(t, "[[egress.allow]]\nhosts = [\"a.example\"]\n")})
		if len(r.Lookups) != 1 || r.Lookups[0].Count != 2 || r.Lookups[0].Verdict.Reason != want.String() {
			t.Errorf("%s: %+v, want two questions and the verdict %v", address, r.Lookups, want)
		}
	}
}

// TestRefusalsCarryTheirVerdict: a denial that the gateway answered by an ICMP error may stand on that.
func TestRefusalsCarryTheirVerdict(t *testing.T) {
	t.Parallel()
	datagram := packet(17, 8)
	datagram = append(datagram, 0x90, 0, 0x27, 0x0f, 0, 8, 0, 0)
	refusal := packet(1, 8+28)
	copy(refusal, datagram[6:12])
	copy(refusal[6:], datagram[:6])
	copy(refusal[26:], datagram[30:34])
	copy(refusal[30:], datagram[26:30])
	refusal = append(append(refusal, 3, 13, 0, 0, 0, 0, 0, 0), datagram[14:]...)
	l := newLink()
	l.w.Packet(capture.FromGuest, datagram, "")
	l.w.Packet(capture.ToGuest, refusal, "msb flow=1 action=deny reason=no_rule")
	r := l.review(t)
	for f := range r.Flows() {
		if f.Recorded == nil || f.Recorded.Action != "deny" || f.Recorded.Reason != "no_rule" {
			t.Errorf("the recorded verdict is %+v, want deny no_rule", f.Recorded)
		}
	}
	if r.Len() != 1 {
		t.Errorf("%d flows, want 1", r.Len())
	}
}

// TestI16_QuestionsBeforeTheHandshakeDontCount: the gateway's stack drops what comes before its answer to the SYN. In the twin it comes
// behind it.
func TestI16_QuestionsBeforeTheHandshakeDontCount(t *testing.T) {
	t.Parallel()
	body := question(dns.TypeA)[14+20+8:]
	message := string([]byte{0, byte(len(body))}) + string(body)
	to := func(flags byte, seq uint32, text string) []byte { return segmentTo(53, 40000, flags, seq, text) }
	for before, want := range map[bool]int{true: 0, false: 1} {
		l := newLink()
		frames := [][]byte{to(capture.SYN, 999, ""), to(capture.ACK, 1000, message), accepts(53, 40000, 999), to(capture.ACK, 1000, "")}
		if !before {
			frames[1], frames[2], frames[3] = frames[2], frames[3], frames[1]
		}
		for _, f := range frames {
			l.w.Packet(directionOf(f), f, "")
		}
		if r := l.review(t); len(r.Lookups) != want || r.Len() != 1 {
			t.Errorf("before the handshake %v: %d questions in %d flows, want %d in one", before, len(r.Lookups), r.Len(), want)
		}
	}
}

// TestI1_AnnouncementsAreListedAsDenied: the gateway drops them without an answer, and says so in its log.
func TestI1_AnnouncementsAreListedAsDenied(t *testing.T) {
	t.Parallel()
	for port, want := range map[uint16]string{5353: "deny protocol_mismatch", 138: "deny protocol_mismatch", 9999: "allow default_public"} {
		l := newLink()
		l.w.Packet(capture.FromGuest, append(packet(17, 8), 0x90, 0, byte(port>>8), byte(port), 0, 8, 0, 0), "")
		if err := l.w.Close(); err != nil {
			t.Fatal(err)
		}
		for f := range read(t, l.out.Bytes(), review.Options{Policy: policy(t, "[egress]\ndefault = \"public\"\n")}).Flows() {
			if f.Verdict == nil || f.Verdict.Action+" "+f.Verdict.Reason != want {
				t.Errorf("port %d: %+v, want %s", port, f.Verdict, want)
			}
		}
	}
}
