package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"time"

	"github.com/msb-project/msb/dnsguard"
	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/netstack"
)

// ProxyPort is where the gateway's own addresses take requests as an HTTP proxy, for clients that are
// told to use one. It is no second way out: what is asked for here is resolved by dnsguard and judged as
// the flow that the client would have opened itself.
const ProxyPort = 3128

// maxProxyHead bounds a request's head; it is secretproxy's bound for the same head.
const maxProxyHead = 64 << 10

// isProxy reports whether dst is the explicit proxy.
func (g *Gateway) isProxy(dst netip.AddrPort) bool {
	link := g.stack.Config()
	return dst.Port() == ProxyPort && (dst.Addr() == link.Gateway4 || dst.Addr() == link.Gateway6)
}

// serveExplicit answers one request to the explicit proxy: a CONNECT becomes a tunnel, any other is the
// one request of its connection.
func (g *Gateway) serveExplicit(ctx context.Context, t *netstack.TCPFlow) {
	guest, err := t.Accept()
	if err != nil {
		return
	}
	stop := context.AfterFunc(ctx, guest.Reset)
	defer stop()
	head, rest, err := readProxyHead(guest)
	var req proxyRequest
	if err == nil {
		req, err = parseProxyHead(head)
	}
	if err == nil && req.connect && len(rest) > 0 {
		err = badProxyHead("bytes follow a CONNECT before its answer")
	}
	switch {
	case errors.Is(err, errProxyHead):
		f := g.open(egress.TCP, t.Src(), t.Dst())
		f.verdict = egress.Verdict{Reason: egress.ReasonUnreadable, Addr: t.Dst().Addr()}
		g.record(f)
		answerProxy(guest, http.StatusBadRequest, proxyRefusal{"bad_request", f.verdict.Reason.String(), "", err.Error()})
	case err != nil:
		guest.Reset() // it said nothing, or went away
	case req.connect && req.port == dnsPort:
		g.tunnelDNS(ctx, guest)
	default:
		req.client, req.proxy = t.Src(), t.Dst()
		g.serveProxied(ctx, guest, &req, rest)
	}
}

// readProxyHead reads to the end of a head, and gives what came behind it apart.
func readProxyHead(c net.Conn) (head, rest []byte, err error) {
	_ = c.SetReadDeadline(time.Now().Add(peekTimeout))
	defer func() { _ = c.SetReadDeadline(time.Time{}) }()
	var got []byte
	buf := make([]byte, 4<<10)
	for {
		n, err := c.Read(buf)
		from := max(0, len(got)-3) // the part of the mark that came before
		got = append(got, buf[:n]...)
		end, bad := proxyHeadEnd(got, from)
		switch {
		case bad != nil:
			return nil, nil, bad
		case end > 0:
			return got[:end], got[end:], nil
		case err != nil:
			return nil, nil, err
		}
	}
}

// proxyHeadEnd is the length of the head that got begins with, 0 if more of it must come. Nothing before
// from ends it.
func proxyHeadEnd(got []byte, from int) (int, error) {
	if i := bytes.Index(got[from:], []byte("\r\n\r\n")); i >= 0 {
		return from + i + 4, nil
	}
	switch {
	case len(got) > maxProxyHead:
		return 0, badProxyHead("its head is larger than 64 KiB")
	case len(got) > 0 && (got[0] < 'A' || got[0] > 'Z'):
		return 0, badProxyHead("it is not HTTP")
	}
	return 0, nil
}

// tunnelDNS gives a tunnel to port 53 to dnsguard, whatever its destination, as every flow to it.
func (g *Gateway) tunnelDNS(ctx context.Context, guest *netstack.TCPConn) {
	defer func() { _ = guest.Close() }()
	if connected(guest) == nil {
		g.guard.ServeTCP(ctx, guest)
	}
}

// serveProxied judges the flow to each of the target's addresses until one may be had.
func (g *Gateway) serveProxied(ctx context.Context, guest *netstack.TCPConn, req *proxyRequest, rest []byte) {
	addrs, refusal := g.proxyAddrs(ctx, req)
	if refusal != nil {
		answerProxy(guest, refusal.status, refusal.proxyRefusal)
		return
	}
	var last *flow
	var failed error
	for _, addr := range addrs {
		f := g.openProxied(addr, req)
		last = f
		action := g.judgeConnect(f)
		if !req.connect && action != egress.Deny {
			action = g.judgeProxied(f, req.name)
		}
		switch {
		case action == egress.Deny:
			g.record(f)
		case !req.connect:
			g.serveInspected(ctx, &counted{Conn: guest, first: append(req.head, rest...)}, f)
			return
		case action == egress.Allow:
			var done bool
			if done, failed = g.tunnel(ctx, guest, f); done {
				return
			}
		default: // Peek, Inspect: the client speaks first, and nothing is dialled before
			g.tunnelClosely(ctx, guest, f, action)
			return
		}
	}
	if failed != nil {
		answerProxy(guest, http.StatusBadGateway, dialRefusal(failed))
		return
	}
	v := last.verdict
	answerProxy(guest, http.StatusForbidden, proxyRefusal{"denied", v.Reason.String(), v.Rule, v.Message()})
}

// openProxied makes the flow to one address of the target's.
func (g *Gateway) openProxied(addr netip.Addr, req *proxyRequest) *flow {
	f := g.open(egress.TCP, req.client, netip.AddrPortFrom(addr, req.port))
	f.proxy = req.proxy
	req.narrow(&f.Flow)
	return f
}

// judgeProxied judges a plain request again by its name.
func (g *Gateway) judgeProxied(f *flow, name hostname.Name) egress.Action {
	f.verdict = judgeAsked(func(*egress.Flow) egress.Verdict { return g.judge(f) }, &f.Flow, name)
	return f.verdict.Action
}

// tunnel dials what is allowed as it is, and tells the client only then. It reports false if the
// destination could not be reached and nothing was said yet.
func (g *Gateway) tunnel(ctx context.Context, guest *netstack.TCPConn, f *flow) (bool, error) {
	ctx, done := g.admit(ctx, f)
	upstream, err := g.dial(ctx, f)
	if err != nil {
		done(0, 0, err)
		return false, err
	}
	if err := connected(guest); err != nil {
		guest.Reset()
		done(0, 0, errors.Join(err, upstream.Close()))
		return true, nil
	}
	up, down, err := netstack.Relay(ctx, guest, upstream, netstack.RelayOptions{Admit: g.budget.take})
	done(up, down, err)
	return true, nil
}

// tunnelClosely opens a tunnel in which what the client says decides.
func (g *Gateway) tunnelClosely(ctx context.Context, guest *netstack.TCPConn, f *flow, action egress.Action) {
	if err := connected(guest); err != nil {
		guest.Reset()
		return
	}
	if action == egress.Peek {
		g.peekConn(ctx, guest, f)
		return
	}
	f.App = inspectedApp(f.verdict)
	g.serveInspected(ctx, &counted{Conn: guest}, f)
}

// connected answers a CONNECT.
func connected(guest *netstack.TCPConn) error {
	_ = guest.SetWriteDeadline(time.Now().Add(peekTimeout))
	_, err := io.WriteString(guest, "HTTP/1.1 200 Connection established\r\n\r\n")
	_ = guest.SetWriteDeadline(time.Time{})
	return err
}

// statusRefusal is a refusal with its status.
type statusRefusal struct {
	status int
	proxyRefusal
}

// proxyAddrs returns where the target is. What dnsguard refuses has its audit line already.
func (g *Gateway) proxyAddrs(ctx context.Context, req *proxyRequest) ([]netip.Addr, *statusRefusal) {
	if req.name.IsZero() {
		return []netip.Addr{req.addr}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	addrs, err := g.guard.Resolve(ctx, req.name)
	switch {
	case err == nil:
		return addrs, nil
	case errors.Is(err, dnsguard.ErrRefused):
		v := refusedName(g.engine.Load(), req.name)
		g.cfg.Capture.refused(req, &v)
		return nil, &statusRefusal{http.StatusForbidden, proxyRefusal{"denied", v.Reason.String(), v.Rule, v.Message()}}
	}
	return nil, &statusRefusal{http.StatusBadGateway, proxyRefusal{"upstream", "upstream_name", "", err.Error()}}
}

// proxyRefusal is the body of an answer that the explicit proxy gives itself; secretproxy's have the
// same keys.
type proxyRefusal struct {
	Error   string `json:"error"`
	Reason  string `json:"reason"`
	Rule    string `json:"rule,omitempty"`
	Message string `json:"message"`
}

// dialRefusal keeps to the class of an error: its text speaks of the host's network.
func dialRefusal(err error) proxyRefusal {
	var netErr net.Error
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &netErr) && netErr.Timeout() {
		return proxyRefusal{"upstream", "upstream_timeout", "", "the server did not answer in time"}
	}
	return proxyRefusal{"upstream", "upstream_refused", "", "the server could not be connected to"}
}

// answerProxy writes a refusal and ends the connection.
func answerProxy(guest *netstack.TCPConn, status int, r proxyRefusal) {
	body, err := json.Marshal(r)
	if err != nil { // a struct of strings always encodes
		body = []byte("{}")
	}
	_ = guest.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = fmt.Fprintf(guest, "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nCache-Control: no-store\r\nX-Msb-Reason: %s\r\nConnection: close\r\n\r\n%s\n",
		status, http.StatusText(status), len(body)+1, r.Reason, body)
	hangUp(guest)
}
