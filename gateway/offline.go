package gateway

import (
	"io"
	"net/netip"
	"slices"

	"github.com/msb-project/msb/dnsguard"
	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/egress/clienthello"
	"github.com/msb-project/msb/egress/httphead"
	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/secretproxy"
)

// Offline judges the flows of a capture as a Gateway under the same policy would, with no link, no
// resolver and no sockets. What depends on the moment and not on the policy isn't known to it: [limits],
// and the addresses of the host that the sandbox ran on, unless they are given. It is not safe for
// several goroutines.
type Offline struct {
	engine  *egress.Engine
	names   *dnsguard.Replay
	gateway []netip.Addr
}

// NewOffline returns an Offline under p. gateway are the gateway's own addresses on the link, host those
// of the host.
func NewOffline(p *policies.Policy, gateway, host []netip.Addr) (*Offline, error) {
	c := egress.NewClassifier(gateway...)
	c.SetHost(host...)
	engine, err := egress.New(p, egress.WithClassifier(c))
	if err != nil {
		return nil, err
	}
	return &Offline{engine: engine, names: dnsguard.NewReplay(p, engine), gateway: gateway}, nil
}

// Names takes the capture's questions and answers, and its time.
func (o *Offline) Names() *dnsguard.Replay { return o.names }

// Connect judges a TCP connection at its SYN. After a Peek, ask First.
func (o *Offline) Connect(src, dst netip.AddrPort) (egress.Flow, egress.Verdict) {
	f, _ := meet(o.names, egress.TCP, src, dst)
	v := o.engine.Decide(&f)
	if v.Action == egress.Inspect {
		f.App = inspectedApp(v)
	}
	return f, v
}

// First judges a connection by the first bytes of its client; more asks for more of them, unless end
// says that none will come.
func (o *Offline) First(f *egress.Flow, first []byte, end bool) (v egress.Verdict, more bool) {
	said, more := understand(first)
	if more {
		if !end {
			return egress.Verdict{}, true
		}
		said = cutShort(len(first), said.app, io.EOF)
	}
	return judgeSaid(o.engine.Decide, f, said), false
}

// Heard judges a request of an inspected plain HTTP connection by its head.
func (o *Offline) Heard(f *egress.Flow, head []byte) secretproxy.Replayed {
	return secretproxy.ReplayHead(o.engine, *f, head)
}

// UDP judges a datagram's flow. quiet says that it would vanish without a verdict.
func (o *Offline) UDP(src, dst netip.AddrPort) (f egress.Flow, v egress.Verdict, vanishes bool) {
	f, _ = meet(o.names, egress.UDP, src, dst)
	return f, whole(o.engine.Decide(&f)), quiet(dst.Port())
}

// Ping judges an echo request.
func (o *Offline) Ping(src, dst netip.Addr) (egress.Flow, egress.Verdict) {
	f, _ := meet(o.names, egress.ICMP, netip.AddrPortFrom(src, 0), netip.AddrPortFrom(dst, 0))
	return f, echoed(&f, o.engine.Decide(&f))
}

// Request judges one request of an inspected connection.
func (o *Offline) Request(f egress.Flow, method, path string) egress.Verdict {
	f.Stage, f.Method, f.Path = egress.StageRequest, method, path
	return o.engine.Decide(&f)
}

// Requested is a request of an inspected connection as the recording gateway told of it. Of what TLS hides
// there is nothing else in a capture.
type Requested struct {
	TLS          bool
	Host         hostname.Name // zero for a literal address
	Method, Path string
	// Asked says that the explicit proxy was asked for Host.
	Asked bool
	// Pinned are the names of the connection, as they were when it began: a gateway keeps them for as long as
	// it lasts. Without any, the pins of the moment count.
	Pinned []hostname.Name
}

// Requested judges a request of a connection from src to dst: the connection first, then the request if the
// connection would be looked into.
func (o *Offline) Requested(src, dst netip.AddrPort, r Requested) (egress.Flow, egress.Verdict) {
	f, _ := meet(o.names, egress.TCP, src, dst)
	if len(r.Pinned) > 0 && !f.Mapped {
		f.Pinned = r.Pinned
	}
	if r.Asked && slices.Contains(f.Pinned, r.Host) {
		f.Pinned = []hostname.Name{r.Host}
	}
	v := o.engine.Decide(&f)
	said := spoken{app: egress.AppHTTP, host: httphead.Head{Host: r.Host}}
	if r.TLS {
		said = spoken{app: egress.AppTLS, hello: clienthello.Hello{ServerName: r.Host}}
	}
	if v.Action == egress.Peek {
		v = judgeSaid(o.engine.Decide, &f, said)
	}
	if v.Action != egress.Inspect {
		return f, v
	}
	said.apply(&f)
	return f, o.Request(f, r.Method, r.Path)
}
