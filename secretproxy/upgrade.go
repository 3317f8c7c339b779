package secretproxy

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/msb-project/msb/policies"
)

// isWebSocket reports whether a request or an answer is about WebSocket, whose
// messages are looked into.
func isWebSocket(h http.Header) bool { return strings.EqualFold(h.Get("Upgrade"), "websocket") }

// judgeUpgrade refuses another protocol than WebSocket on a host of a secret:
// nobody looks into it, and the server could show the value there. A secret can
// allow one by name. The port is not asked for: a value may be shown at any.
func (ex *exchange) judgeUpgrade(h http.Header) *refusal {
	protocol := h.Get("Upgrade")
	if protocol == "" || isWebSocket(h) {
		return nil
	}
	for i := range ex.state.policy.Secrets {
		s := &ex.state.policy.Secrets[i]
		if slices.ContainsFunc(s.Hosts, func(p policies.SecretHost) bool { return p.Pattern.Match(ex.host) }) &&
			!slices.Contains(s.Upgrades, strings.ToLower(protocol)) {
			return &refusal{
				status: http.StatusForbidden, code: "upgrade", rule: ex.verdict.Rule,
				message: "an upgrade to another protocol than WebSocket on a host of secret " + s.Name + ", in which its value could not be masked: name it in the secret's upgrades if that may be",
			}
		}
	}
	return nil
}

// dropExtensions keeps WebSocket's extensions from being agreed on: compressed
// messages could not be searched.
func dropExtensions(h http.Header) {
	for name := range h {
		if strings.EqualFold(strings.ReplaceAll(name, "_", "-"), "Sec-WebSocket-Extensions") {
			delete(h, name)
		}
	}
}

// serveUpgrade forwards a request that wants another protocol. After a 101 the
// frames of a WebSocket are carried by webSocket; bytes of other protocols go
// through as they are.
func (p *Proxy) serveUpgrade(ex *exchange, r *http.Request) {
	if isWebSocket(r.Header) {
		dropExtensions(r.Header)
	}
	resp, err := ex.roundTrip(r)
	ex.out.endHints()
	if err != nil {
		p.refuseUpgrade(ex, upstreamRefusal(err))
		return
	}
	defer resp.Body.Close()
	ex.refused(resp.StatusCode)
	if resp.StatusCode != http.StatusSwitchingProtocols {
		notUpgraded(p, ex, resp)
		return
	}
	upstream, ok := resp.Body.(io.ReadWriteCloser)
	if !ok || !strings.EqualFold(resp.Header.Get("Upgrade"), r.Header.Get("Upgrade")) {
		p.refuseUpgrade(ex, &refusal{status: http.StatusBadGateway, code: "upstream_protocol", cause: "protocol", message: "the server switched to a protocol that was not asked for"})
		return
	}
	if !ex.holdHead(resp) {
		p.refuseUpgrade(ex, memoryFull())
		return
	}
	protocol := resp.Header.Get("Upgrade")
	hopResponse(resp.Header)
	dropExtensions(resp.Header)
	if p.known.masks() || ex.signed() {
		maskHeader(p, p.known.newest(), resp.Header)
	}
	header := ex.out.Header()
	for k, v := range resp.Header {
		header[k] = v
	}
	header.Set("Connection", "Upgrade")
	header.Set("Upgrade", protocol)
	auditAnswer(p, ex, resp.StatusCode)
	ex.out.ResponseWriter.WriteHeader(http.StatusSwitchingProtocols)
	p.splice(ex, r, upstream) //nolint:contextcheck // r carries its own
}

// notUpgraded passes an ordinary answer on and ends the connection: what the
// guest sent behind its request was meant for another protocol.
func notUpgraded(p *Proxy, ex *exchange, resp *http.Response) {
	if fault := p.prepare(ex, resp, nil); fault != nil {
		p.refuseUpgrade(ex, fault)
		return
	}
	header := ex.out.Header()
	for k, v := range resp.Header {
		header[k] = v
	}
	header.Set("Connection", "close")
	ex.out.WriteHeader(resp.StatusCode)
	if _, err := ex.out.ReadFrom(resp.Body); err != nil {
		panic(http.ErrAbortHandler)
	}
}

func (p *Proxy) refuseUpgrade(ex *exchange, fault *refusal) {
	ex.out.Header().Set("Connection", "close")
	p.refuse(ex.out.ResponseWriter, ex, fault)
}

// splice carries both ways until both are done, passing a half-close on.
func (p *Proxy) splice(ex *exchange, r *http.Request, upstream io.ReadWriteCloser) {
	conn, buffered, err := http.NewResponseController(ex.out.ResponseWriter).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	if strict, ok := conn.(*strictConn); ok {
		strict.openTunnel()
	}
	if isWebSocket(r.Header) {
		(&webSocket{proxy: p, ex: ex, req: r, guest: conn, upstream: upstream}).serve(buffered.Reader)
		return
	}
	var copies sync.WaitGroup
	copies.Go(func() {
		_, err := io.Copy(upstream, buffered.Reader)
		if half, ok := upstream.(interface{ CloseWrite() error }); ok && err == nil {
			_ = half.CloseWrite()
			return
		}
		_ = upstream.Close()
	})
	copies.Go(func() {
		_, err := io.Copy(conn, &opaque{Reader: upstream, proxy: p, ex: ex, header: r.Header})
		if half, ok := conn.(interface{ CloseWrite() error }); ok && err == nil {
			_ = half.CloseWrite()
			return
		}
		_ = conn.Close()
	})
	copies.Wait()
}

// opaque is what a server says in a protocol that nobody looks into. It ends when
// a reload makes the server a host of a secret.
type opaque struct {
	io.Reader
	proxy  *Proxy
	ex     *exchange
	header http.Header
}

// Read implements io.Reader.
func (o *opaque) Read(p []byte) (int, error) {
	n, err := o.Reader.Read(p)
	if st := o.proxy.state.Load(); st != o.ex.state {
		now := *o.ex
		now.state = st
		if now.judgeUpgrade(o.header) != nil {
			return 0, errFirstSecret
		}
	}
	return n, err
}
