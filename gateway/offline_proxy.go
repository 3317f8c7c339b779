package gateway

import (
	"net/netip"
	"slices"

	"github.com/msb-project/msb/egress"
)

// Asked is a request to the explicit proxy that was found in a capture.
type Asked struct {
	// Target is what was asked for, "api.example.com:443"; empty if that can't be read without guessing.
	Target string
	// Length is how many of the bytes are its head.
	Length int
	// Head is a plain request's head as its server would see it; nil for CONNECT.
	Head []byte

	req proxyRequest
	err error
}

// Lookup reports whether it is a tunnel to a resolver, which dnsguard serves and nobody judges.
func (a *Asked) Lookup() bool { return a.err == nil && a.req.connect && a.req.port == dnsPort }

// IsProxy reports whether dst is the explicit proxy.
func (o *Offline) IsProxy(dst netip.AddrPort) bool {
	return dst.Port() == ProxyPort && slices.Contains(o.gateway, dst.Addr())
}

// ReadAsked reads the request that a client at src began its connection to the proxy with. It reports
// false if its head has not ended.
func ReadAsked(src, proxy netip.AddrPort, first []byte) (*Asked, bool) {
	end, err := proxyHeadEnd(first, 0)
	if err == nil && end == 0 {
		return nil, false
	}
	a := &Asked{Length: end, err: err}
	if err == nil {
		a.req, a.err = parseProxyHead(first[:end])
	}
	a.req.client, a.req.proxy = src, proxy
	if a.err == nil {
		a.Target, a.Head = a.req.target(), a.req.head
	}
	return a, true
}

// Answered is what became of a request to the explicit proxy.
type Answered struct {
	Flow    egress.Flow
	Verdict egress.Verdict
	// Name is the verdict on the name that was asked for, with the addresses that it is known to have;
	// its name is zero for an address.
	Name  egress.Verdict
	Addrs []netip.Addr
	// Unknown says that the name may be asked for and that the capture holds no address of it.
	Unknown bool
}

// Ask judges a request to the explicit proxy at the moment of its answer, when all names of it are known.
// After a Peek, ask First with what the client says in its tunnel.
func (o *Offline) Ask(a *Asked) Answered {
	if a.err != nil {
		f, _ := meet(o.names, egress.TCP, a.req.client, a.req.proxy)
		return Answered{Flow: f, Verdict: egress.Verdict{Reason: egress.ReasonUnreadable, Addr: a.req.proxy.Addr()}}
	}
	out := Answered{Addrs: []netip.Addr{a.req.addr}}
	if name := a.req.name; !name.IsZero() {
		out.Flow = egress.Flow{Proto: egress.TCP, Src: a.req.client, Dst: a.req.proxy, Name: name}
		out.Addrs, out.Name = o.names.Resolve(name)
		switch {
		case !out.Name.Allowed():
			out.Verdict = refusedName(o.engine, name)
			return out
		case len(out.Addrs) == 0:
			out.Unknown, out.Verdict = true, egress.Verdict{Action: egress.Peek, Name: name}
			return out
		}
	}
	for _, addr := range out.Addrs {
		f, _ := meet(o.names, egress.TCP, a.req.client, netip.AddrPortFrom(addr, a.req.port))
		a.req.narrow(&f)
		v := o.engine.Decide(&f)
		if !a.req.connect && v.Action != egress.Deny {
			v = judgeAsked(o.engine.Decide, &f, a.req.name)
		}
		if v.Action == egress.Inspect && a.req.connect {
			f.App = inspectedApp(v)
		}
		out.Flow, out.Verdict = f, v
		if v.Action != egress.Deny {
			break
		}
	}
	return out
}
