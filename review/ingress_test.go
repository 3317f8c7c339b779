package review_test

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"github.com/msb-project/msb/capture"
	"github.com/msb-project/msb/review"
)

// intoGuest is a SYN of the gateway's to a port of the guest.
func intoGuest(from, to uint16) []byte {
	f := segmentTo(to, from, capture.SYN, 999, "")
	copy(f[26:30], []byte{192, 168, 127, 1})
	copy(f[30:34], []byte{192, 168, 127, 2})
	return f
}

// TestClientsOfPublishedPortsAreJudged by the policy, as the gateway does. A flow of which no comment tells the client is
// not judged, and one that the guest opened is never taken for one.
func TestClientsOfPublishedPortsAreJudged(t *testing.T) {
	t.Parallel()
	const lan = "[[ingress.allow]]\nname = \"lan\"\ncidrs = [\"192.168.1.0/24\"]\n"
	const app = "[[ingress.allow]]\nname = \"app\"\nsandboxes = [\"web\"]\nports = [80]\n"
	verdict := func(client, action, rule, reason string) string {
		return capture.Verdict{Kind: capture.KindPort, Action: action, Rule: rule, Reason: reason, Client: client}.String()
	}
	for i, c := range []struct {
		policy, comment string
		outbound        bool
		action, reason  string // "" for no verdict
		changed         bool
	}{
		{lan, verdict("192.168.1.7:5000", "allow", "lan", "rule"), false, "allow", "rule", false},
		{"", verdict("192.168.1.7:5000", "allow", "lan", "rule"), false, "deny", "no_rule", true},
		{"", verdict("127.0.0.1:5000", "allow", "", "this_machine"), false, "allow", "this_machine", false},
		{"", verdict("192.168.1.2:5000", "allow", "", "this_machine"), false, "allow", "this_machine", false},
		{app, verdict("sandbox:web", "allow", "app", "rule"), false, "allow", "rule", false},
		{app, verdict("sandbox:worm", "allow", "app", "rule"), false, "deny", "no_rule", true},
		{strings.Replace(app, "80", "81", 1), verdict("sandbox:web", "allow", "app", "rule"), false, "deny", "no_rule", true},
		{lan, verdict("sandbox:web", "allow", "app", "rule"), false, "deny", "no_rule", true},
		{"", verdict("192.168.1.7:5000", "allow", "", "pod_open"), false, "allow", "pod_open", false},
		{lan, verdict("10.0.0.1:5000", "allow", "", "pod_open"), false, "deny", "no_rule", true},
		{lan, verdict("127.0.0.1:5000", "allow", "", "pod_open"), false, "allow", "this_machine", false},
		{lan, "msb flow=1 action=deny reason=no_rule", false, "", "", false},
		{lan, "", false, "", "", false},
		{lan, verdict("who", "allow", "lan", "rule"), false, "", "", false},
		{lan, verdict("192.168.1.7:5000", "allow", "lan", "rule"), true, "deny", "no_rule", false},
	} {
		l := newLink()
		frame, dir := intoGuest(40000, 80), capture.ToGuest
		if c.outbound {
			frame, dir = segmentTo(9, 40000, capture.SYN, 999, ""), capture.FromGuest
		}
		l.w.Packet(dir, frame, c.comment)
		if err := l.w.Close(); err != nil {
			t.Fatal(err)
		}
		r := read(t, l.out.Bytes(), review.Options{Policy: policy(t, c.policy), Learn: true})
		nothing := read(t, headOf(l.out.Bytes()), review.Options{Policy: policy(t, c.policy), Learn: true})
		if learned := string(r.Learned()); !c.outbound && learned != string(nothing.Learned()) {
			t.Errorf("%d: a client taught\n%s", i, learned)
		}
		for f := range r.Flows() {
			switch {
			case c.action == "" && (f.Verdict != nil || f.Changed()), c.action != "" && f.Verdict == nil:
				t.Errorf("%d: the verdict is %+v, want %q", i, f.Verdict, c.action)
			case c.action != "" && (f.Verdict.Action != c.action || f.Verdict.Reason != c.reason || f.Changed() != c.changed):
				t.Errorf("%d: %+v, changed %v; want %s %s, %v", i, f.Verdict, f.Changed(), c.action, c.reason, c.changed)
			case !c.outbound && !f.Inbound, c.action != "" && !c.outbound && f.Name == "":
				t.Errorf("%d: %+v", i, f)
			}
		}
	}
}

// TestPortsOfClientsAreUsedAgain: a client of a published port may connect again from the same port. The SYN of the same number is
// the first one, sent again.
func TestPortsOfClientsAreUsedAgain(t *testing.T) {
	t.Parallel()
	l := newLink()
	again := intoGuest(40000, 80)
	binary.BigEndian.PutUint32(again[14+20+4:], 5999)
	for _, frame := range [][]byte{intoGuest(40000, 80), intoGuest(40000, 80), again} {
		l.w.Packet(capture.ToGuest, frame, "")
	}
	r := l.review(t)
	var packets []int64
	for f := range r.Flows() {
		packets = append(packets, f.Packets)
	}
	if !slices.Equal(packets, []int64{2, 1}) {
		t.Errorf("flows of %v packets, want 2 and 1", packets)
	}
}
