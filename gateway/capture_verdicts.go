package gateway

import (
	"net/netip"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/capture"
	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/egress/httphead"
)

// sink returns an audit.Sink that hands events on to next and takes the verdicts out of them.
func (c *CaptureTap) sink(next audit.Sink) audit.Sink { return captureSink{c, next} }

type captureSink struct {
	c    *CaptureTap
	next audit.Sink
}

var _ audit.Sink = captureSink{}

// Emit implements audit.Sink.
func (s captureSink) Emit(e audit.Event) {
	s.c.saw(e) // first: whoever has seen the line may stop the capture, which must hold the comment by then
	s.next.Emit(e)
}

// saw takes a verdict that the audit merges with others: its packet has its comment all the same. c may be
// nil.
func (c *CaptureTap) saw(e audit.Event) {
	if c == nil {
		return
	}
	if w := c.writer.Load(); w != nil {
		c.take(w, &e)
	}
}

// take makes a comment of a verdict.
func (c *CaptureTap) take(w *capture.Writer, e *audit.Event) {
	v := capture.Verdict{
		Kind: capture.KindFlow, Flow: e.Flow, Action: e.Action, WouldDeny: e.WouldDeny, Rule: e.Rule, Reason: e.Reason,
		Message: e.Message,
	}
	switch e.Kind {
	case audit.FlowOpen:
		v.Name = firstOf(append([]string{e.SNI, e.Host}, e.Names...))
	case audit.HTTPRequest:
		if e.Method == "" {
			return // it came to no request: a handshake that failed, bytes that are none
		}
		v.Kind, v.Name, v.Scheme, v.Method, v.Path = capture.KindRequest, e.Host, e.Scheme, e.Method, e.Path
		v.Overrides = e.Overrides
		if len(v.Path) > maxPath {
			v.Path = ""
		}
	case audit.Limit:
	case audit.DNSQuery:
		if e.DNS == nil {
			return // denials of a flood, merged
		}
		v.Kind, v.Name = capture.KindName, e.DNS.Name
		recordNames(w, e.DNS)
	default:
		return
	}
	key := flowKey{proto: transportOf(e.Proto), srcPort: e.SrcPort, dst: netip.AddrPortFrom(e.Dst, e.Port)}
	if e.Proxy.IsValid() { // the packets are those of the client's connection to the proxy
		v.To, key.dst = key.dst.String(), e.Proxy
	}
	if key.proto == capture.TransportNone || !e.Dst.IsValid() {
		return
	}
	c.comment(w, key, text(v))
}

// text is a verdict's comment. What a guest made too long for one is left out, or counted: a comment that is cut
// in the middle of a value says nothing to a review.
func text(v capture.Verdict) string {
	if !v.Whole() {
		v.Path = "" // quoted, it can be four times as long
	}
	if !v.Whole() {
		return capture.LostVerdicts(1)
	}
	return v.String()
}

// refused puts the verdict on a name that a client asked the explicit proxy for beside the client's
// connection. The audit has it as a question of the gateway's own, which no packet belongs to. c may be
// nil.
func (c *CaptureTap) refused(r *httphead.ProxyRequest, client, proxy netip.AddrPort, verdict *egress.Verdict) {
	if c == nil {
		return
	}
	w := c.writer.Load()
	if w == nil {
		return
	}
	v := capture.Verdict{
		Kind: capture.KindName, Action: verdict.Action.String(), WouldDeny: verdict.WouldDeny, Rule: verdict.Rule,
		Reason: verdict.Reason.String(), Name: r.Name.String(), To: r.Target(), Message: verdict.Message(),
	}
	c.comment(w, flowKey{capture.TransportTCP, client.Port(), proxy}, text(v))
}

// comment puts text on the flow's first packet if that waits still, else on its next one.
func (c *CaptureTap) comment(w *capture.Writer, key flowKey, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.writer.Load() != w {
		return // as in match
	}
	t, seen := c.first[key]
	delete(c.first, key)
	if seen && w.Annotate(t, text) {
		return
	}
	late := c.late[key]
	if late == nil {
		if len(c.late) >= maxAwaited {
			c.forgetLate() // flows of which no other packet came
		}
		late = &lateComments{}
		c.late[key] = late
		c.some.Store(int32(len(c.late)))
	}
	if len(late.texts) >= maxLate || c.lateBytes+len(text) > maxLateBytes {
		late.lost++
		return
	}
	late.texts = append(late.texts, text)
	late.bytes += len(text)
	c.lateBytes += len(text)
}

// recordNames writes what a name was answered with.
func recordNames(w *capture.Writer, d *audit.DNSDetail) {
	var addrs []netip.Addr
	for _, text := range d.Answers {
		if a, err := netip.ParseAddr(text); err == nil {
			addrs = append(addrs, a)
		}
	}
	if len(addrs) > 0 {
		w.Names(d.Name, addrs)
	}
}

func transportOf(proto string) capture.Transport {
	switch proto {
	case "tcp":
		return capture.TransportTCP
	case "udp":
		return capture.TransportUDP
	case "icmp":
		return capture.TransportPing
	}
	return capture.TransportNone
}

func firstOf(names []string) string {
	for _, n := range names {
		if n != "" {
			return n
		}
	}
	return ""
}

// admitted puts the verdict on a client beside the packets of its flow: those between the gateway's address and the
// guest's port. c may be nil. One that was refused has no packets.
func (c *CaptureTap) admitted(ev *audit.Event, gateway, guest netip.AddrPort) {
	if c == nil {
		return
	}
	if w := c.writer.Load(); w != nil {
		v := capture.Verdict{Kind: capture.KindPort, Action: ev.Action, Rule: ev.Rule, Reason: ev.Reason, Client: ev.Client.String()}
		if ev.Peer != "" {
			v.Client = capture.PeerPrefix + ev.Peer
		}
		c.comment(w, flowKey{transportOf(ev.Proto), guest.Port(), gateway}, text(v))
	}
}
