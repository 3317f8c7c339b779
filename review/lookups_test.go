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
