package review_test

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/msb-project/msb/capture"
	flow "github.com/msb-project/msb/egress/session"
	"github.com/msb-project/msb/internal/pcapgen"
	"github.com/msb-project/msb/review"
)

// TestI16_PausesDecideAsInTheGateway: it waits for so long, then judges what there is. The twin pauses for a little less.
func TestI16_PausesDecideAsInTheGateway(t *testing.T) {
	t.Parallel()
	for port, want := range map[int][2][]string{
		443: {{"allow rule", "allow rule"}, {"deny unreadable", "deny protocol_mismatch"}},
		80:  {{"inspect needs_request", "inspect needs_request"}, {"deny unreadable", "deny protocol_mismatch"}},
	} {
		for long, pause := range []time.Duration{flow.PeekTimeout - time.Second, flow.PeekTimeout + time.Second} {
			c := pcapgen.Paused(port, pause)
			file, _ := c.Capture()
			var got []string
			for f := range reviewed(t, &c, file).Flows() {
				if f.Proto == "tcp" {
					got = append(got, fmt.Sprint(f.Verdict.Action, " ", f.Verdict.Reason))
				}
			}
			if !slices.Equal(got, want[long]) {
				t.Errorf("port %d, a pause of %s: %q, want %q", port, pause, got, want[long])
			}
		}
	}
}

// TestDatagramsAfterPausesBeginFlows, as in the gateway, which forgets them after two minutes.
func TestDatagramsAfterPausesBeginFlows(t *testing.T) {
	t.Parallel()
	for pause, want := range map[time.Duration]int{119 * time.Second: 1, 121 * time.Second: 2} {
		c := pcapgen.Datagrams(pause)
		file, _ := c.Capture()
		if got := reviewed(t, &c, file).Len(); got != want {
			t.Errorf("after %s: %d flows, want %d", pause, got, want)
		}
	}
}

// TestI16_ProxyClientsHaveTimeForEachPart, as in the gateway: for the request, and for what they say in the tunnel. It takes its own
// time to answer, which counts against nobody.
func TestI16_ProxyClientsHaveTimeForEachPart(t *testing.T) {
	t.Parallel()
	const half, rest, okay, hello = "CONNECT good.exa", "mple:80 HTTP/1.1\r\n\r\n", "HTTP/1.1 200 Connection established\r\n\r\n", "GET /open/1" + goodHost + "\r\n"
	const first, second = 1000 + uint32(len(half)), 1000 + uint32(len(half)+len(rest))
	const byAddress = "[[egress.allow]]\nhosts = [\"good.example\"]\nports = [9]\nprotocol = \"tcp\"\n[[egress.allow]]\ncidrs = [\"93.184.215.14/32\"]\nports = [80]\nprotocol = \"http\"\n"
	const within, beyond = flow.PeekTimeout * 6 / 10, flow.PeekTimeout + time.Second
	for name, c := range map[string]struct {
		pauses map[string]time.Duration // by what comes after it
		want   string
	}{
		"none":                           {nil, "inspect rule"},
		"in both parts":                  {map[string]time.Duration{rest: within, hello: within}, "inspect rule"},
		"too long in the request":        {map[string]time.Duration{rest: beyond}, "deny unreadable"},
		"too long in the tunnel":         {map[string]time.Duration{hello: beyond}, "deny protocol_mismatch"},
		"before the answer":              {map[string]time.Duration{"nothing new": beyond}, "inspect rule"},
		"before the answer, and further": {map[string]time.Duration{"nothing new": beyond, hello: within}, "inspect rule"},
	} {
		l := &link{}
		l.w = capture.NewWriter(&l.out, capture.Options{})
		send := func(frame []byte, comment string) { l.w.Packet(directionOf(frame), frame, comment) }
		synAck := answered(toProxy(capture.SYN|capture.ACK, 0, ""))
		binary.BigEndian.PutUint32(synAck[14+20+8:], 1000)
		send(toProxy(capture.SYN, 999, ""), "")
		send(synAck, "")
		send(toProxy(capture.ACK, 1000, ""), "")
		send(toProxy(capture.ACK, 1000, half), "")
		send(toProxy(capture.ACK, first, rest), "")
		send(toProxy(capture.ACK, second, ""), "nothing new")
		l.w.Names("good.example", []netip.Addr{netip.MustParseAddr("93.184.215.14")}) // resolved by the gateway
		send(answered(toProxy(capture.ACK, 1, okay)), "")
		send(toProxy(capture.ACK, second, hello), "")
		if err := l.w.Close(); err != nil {
			t.Fatal(err)
		}
		for text, pause := range c.pauses {
			delay(l.out.Bytes(), text, pause)
		}
		r := read(t, l.out.Bytes(), review.Options{Policy: policy(t, byAddress)})
		for f := range r.Flows() {
			if got := f.Verdict.Action + " " + f.Verdict.Reason; got != c.want {
				t.Errorf("a pause %s: %s, want %s", name, got, c.want)
			}
		}
		if r.Len() != 1 {
			t.Errorf("a pause %s: %d flows", name, r.Len())
		}
	}
}
