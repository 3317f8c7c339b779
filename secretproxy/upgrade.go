package secretproxy

import (
	"io"
	"net/http"
	"strings"
	"sync"
)

// serveUpgrade forwards a request that wants another protocol, such as
// WebSocket. After a 101 the two connections are spliced: bytes go through as
// they are. A value in the handshake is fine; nothing is replaced after it.
func (p *Proxy) serveUpgrade(ex *exchange, r *http.Request) {
	resp, err := ex.up.transport.RoundTrip(r)
	ex.out.endHints()
	if err != nil {
		p.refuseUpgrade(ex, upstreamRefusal(err))
		return
	}
	defer resp.Body.Close()
	ex.refused(resp.StatusCode)
	if resp.StatusCode != http.StatusSwitchingProtocols {
		p.notUpgraded(ex, resp)
		return
	}
	upstream, ok := resp.Body.(io.ReadWriteCloser)
	if !ok || !strings.EqualFold(resp.Header.Get("Upgrade"), r.Header.Get("Upgrade")) {
		p.refuseUpgrade(ex, &refusal{status: http.StatusBadGateway, code: "upstream_protocol", cause: "protocol", message: "the server switched to a protocol that was not asked for"})
		return
	}
	protocol := resp.Header.Get("Upgrade")
	hopResponse(resp.Header)
	if p.known.masks() {
		p.maskHeader(p.known.newest(), resp.Header)
	}
	header := ex.out.Header()
	for k, v := range resp.Header {
		header[k] = v
	}
	header.Set("Connection", "Upgrade")
	header.Set("Upgrade", protocol)
	p.auditAnswer(ex, resp.StatusCode)
	ex.out.ResponseWriter.WriteHeader(http.StatusSwitchingProtocols)
	p.splice(ex, upstream)
}

// notUpgraded passes an ordinary answer on and ends the connection: what the
// guest sent behind its request was meant for another protocol.
func (p *Proxy) notUpgraded(ex *exchange, resp *http.Response) {
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

// splice copies both ways until both are done, passing a half-close on.
func (p *Proxy) splice(ex *exchange, upstream io.ReadWriteCloser) {
	conn, buffered, err := http.NewResponseController(ex.out.ResponseWriter).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	if strict, ok := conn.(*strictConn); ok {
		strict.openTunnel()
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
		_, err := io.Copy(conn, upstream)
		if half, ok := conn.(interface{ CloseWrite() error }); ok && err == nil {
			_ = half.CloseWrite()
			return
		}
		_ = conn.Close()
	})
	copies.Wait()
}
