package secretproxy

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"net/textproto"

	"github.com/elazarl/goproxy"
)

var _ goproxy.Logger = quiet{}

// newForward builds the handler that carries requests upstream. goproxy gets
// clean requests only: refused ones never reach it, and its own transport and
// dialer, which follow the host's proxy environment, can't be reached.
func (p *Proxy) newForward() *goproxy.ProxyHttpServer {
	f := goproxy.NewProxyHttpServer()
	f.Logger = quiet{}
	f.KeepHeader = true // cleanHop has removed what may not go on
	f.ConnectDial, f.ConnectDialWithReq = nil, nil
	f.Tr = &http.Transport{Proxy: nil, DialContext: nil, DisableKeepAlives: true}
	f.OnRequest().DoFunc(func(r *http.Request, ctx *goproxy.ProxyCtx) (*http.Request, *http.Response) {
		ctx.RoundTripper = roundTrip
		return r, nil
	})
	f.OnResponse().DoFunc(p.answer)
	return f
}

// roundTrip sends a request over its exchange's own transport. A request without an exchange is
// a bug of this package, and is not sent.
var roundTrip = goproxy.RoundTripperFunc(func(r *http.Request, _ *goproxy.ProxyCtx) (*http.Response, error) {
	ex, ok := r.Context().Value(exchangeKey{}).(*exchange)
	if !ok || ex.up == nil {
		return nil, http.ErrAbortHandler
	}
	return ex.roundTrip(r)
})

// send forwards a request that was admitted and swapped.
func (p *Proxy) send(w http.ResponseWriter, r *http.Request, ex *exchange) {
	upgrade := ex.http1 && r.Header.Get("Upgrade") != ""
	up, err := p.upstreams.get(upstreamKey{name: ex.host, dst: ex.guest.dst(), tls: ex.guest.isTLS, http1: upgrade})
	if err != nil {
		p.refuse(w, ex, &refusal{status: http.StatusBadGateway, code: "upstream_roots", cause: "roots", message: err.Error()})
		return
	}
	select {
	case up.slots <- struct{}{}:
		defer p.upstreams.done(up)
	case <-r.Context().Done():
		panic(http.ErrAbortHandler) // the guest went away
	}
	for _, e := range ex.used.list() { // its body may have been waited for, and its turn
		if fault := ex.revoked(p, e, "request", ex.mayGo); fault != nil {
			p.violated(ex, fault)
			p.refuse(w, ex, fault)
			return
		}
	}
	room := int64(answerHeadCost)
	if upgrade {
		room += 2 * copySize
	}
	if !ex.held.Take(room) {
		p.refuse(w, ex, memoryFull())
		return
	}
	defer ex.endHead()
	ex.up = up
	r.URL.Scheme, r.URL.Host = "http", up.host
	if ex.guest.isTLS {
		r.URL.Scheme = "https"
	}
	ex.out = &responseWriter{ResponseWriter: w, length: -1, last: ex.last}
	ctx := context.WithValue(r.Context(), exchangeKey{}, ex)
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) { ex.beginHead(info.Conn) },
		Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			p.informational(ex, code, http.Header(h))
			return nil
		},
	})
	r = r.WithContext(ctx)
	if upgrade {
		p.serveUpgrade(ex, r)
		return
	}
	if ex.http1 && ex.hasBody {
		// Answers that begin before the request's body has ended.
		_ = http.NewResponseController(w).EnableFullDuplex()
	}
	p.forward.ServeHTTP(ex.out, r)
	if ex.out.failed {
		// The answer broke off: the guest must not take it for whole.
		panic(http.ErrAbortHandler)
	}
}

// informational passes 103 Early Hints on, masked, if there is room for them. 100 is between the server and this proxy; 101
// is an answer.
func (p *Proxy) informational(ex *exchange, code int, h http.Header) {
	room := 2 * headSize(h)
	if code != http.StatusEarlyHints || !ex.held.Take(room) {
		return
	}
	defer ex.held.Give(room)
	hints := h.Clone()
	hopResponse(hints)
	if p.known.masks() || ex.signed() { // whether the signature is refused isn't known yet
		maskHeader(p, p.known.newest(), hints)
	}
	ex.out.hint(code, hints)
}

// answer is goproxy's hook on responses, and on failures, where resp is nil.
func (p *Proxy) answer(resp *http.Response, ctx *goproxy.ProxyCtx) *http.Response {
	ex, ok := ctx.Req.Context().Value(exchangeKey{}).(*exchange)
	if !ok {
		return resp
	}
	ex.out.endHints()
	fault := p.prepare(ex, resp, ctx.Error)
	if fault == nil {
		return resp
	}
	p.auditRefusal(ex, fault)
	p.violated(ex, fault)
	header := make(http.Header)
	body := fault.fill(header)
	if ex.http1 && ex.hasBody {
		header.Set("Connection", "close")
	}
	ex.out.length = int64(len(body))
	return &http.Response{StatusCode: fault.status, Header: header, Body: newBytesBody(body), ContentLength: int64(len(body))}
}

// prepare readies a response for the guest.
func (p *Proxy) prepare(ex *exchange, resp *http.Response, err error) *refusal {
	if resp == nil {
		return upstreamRefusal(err)
	}
	ex.refused(resp.StatusCode)
	if resp.StatusCode < 100 || resp.StatusCode > 999 {
		// net/http reads what it then refuses to write (attack: a guest that
		// sees a broken connection where it should see why).
		_ = resp.Body.Close()
		return &refusal{status: http.StatusBadGateway, code: "upstream_protocol", cause: "protocol", message: "the server answered with a status that is none"}
	}
	hopResponse(resp.Header)
	if ex.head || bodyless(resp.StatusCode) {
		// Over HTTP/2, net/http takes a length without a body for a body that was cut off, also here.
		_ = resp.Body.Close()
		resp.Body = http.NoBody
	}
	if !ex.holdAnswer(resp) {
		_ = resp.Body.Close()
		return memoryFull()
	}
	ex.out.live = resp.ContentLength < 0
	if fault := p.maskResponse(ex, resp); fault != nil {
		_ = resp.Body.Close()
		return fault
	}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		_ = resp.Body.Close()
		return &refusal{status: http.StatusBadGateway, code: "upstream_protocol", cause: "protocol", message: "the server switched protocols without being asked"}
	}
	if len(resp.Trailer) > 0 {
		// HTTP/1 has room for trailers behind chunks only.
		resp.ContentLength = -1
		resp.Header.Del("Content-Length")
	}
	ex.out.length = resp.ContentLength
	if ex.unsized {
		ex.out.length, ex.out.unsized = -1, true
	}
	resp.Body = &checkedBody{ReadCloser: resp.Body, proxy: p, ex: ex, resp: resp}
	auditAnswer(p, ex, resp.StatusCode)
	return nil
}

// bodyless reports whether answers of that status have no body, whatever length they tell (RFC 9110, section 6.4.1).
func bodyless(status int) bool {
	return status == http.StatusNoContent || status == http.StatusNotModified
}

// refused rereads the sources of the secrets that were sent, if the policy asks for it: the
// server may have refused a value that was rotated.
func (ex *exchange) refused(status int) {
	if status != http.StatusUnauthorized {
		return
	}
	for _, e := range ex.used.list() {
		e.holder.Refused()
	}
}
