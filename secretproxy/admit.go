package secretproxy

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"

	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/egress/httphead"
	"github.com/msb-project/msb/hostname"
)

// admit refuses requests that aren't about the connection they came on, and
// those that the policy denies. Nothing of the request was acted on before.
func admit(ex *exchange, r *http.Request) *refusal {
	if fault := checkForm(r); fault != nil {
		return fault
	}
	dropAliases(r.Header)
	if fault := checkHost(ex, r); fault != nil {
		return fault
	}
	all := methods(r)
	ex.overrides = strings.Join(all[1:], ",")
	for _, method := range all {
		ex.verdict = judgeMethod(ex, method)
		if ex.verdict.Action == egress.Deny {
			ex.method = method // which may be the one that a header asks for
			return &refusal{
				status: http.StatusForbidden, code: ex.verdict.Reason.String(),
				rule: ex.verdict.Rule, message: ex.verdict.Message(),
			}
		}
	}
	return nil
}

func judgeMethod(ex *exchange, method string) egress.Verdict {
	f := ex.guest.flow
	f.Name, f.Stage, f.Method, f.Path = ex.host, egress.StageRequest, method, ex.path
	f.App = egress.AppHTTP
	if ex.guest.isTLS {
		f.App = egress.AppTLS
	}
	v := ex.state.judge.Decide(&f)
	if ex.guest.requests == nil || !v.Allowed() {
		return v
	}
	// By the rules in force for the connection too: a reload may be between the two.
	v, done := ex.guest.requests.Request(&f)
	ex.ends = append(ex.ends, done)
	return v
}

// end says that the request is over.
func (ex *exchange) end() {
	for _, done := range ex.ends {
		done()
	}
}

// checkForm refuses requests that have no place on an inspected connection.
func checkForm(r *http.Request) *refusal {
	bad := func(status int, code, message string) *refusal {
		return &refusal{status: status, code: code, message: message}
	}
	fault := httphead.CheckRequest(r.Method, r.RequestURI)
	switch {
	case fault != nil && (fault.Code == "connect" || fault.Code == "trace"):
		return bad(http.StatusMethodNotAllowed, fault.Code, fault.Message)
	case fault != nil:
		// Over HTTP/2 a target may hold a blank, behind which an HTTP/1 server would read the version.
		return bad(http.StatusBadRequest, fault.Code, fault.Message)
	case r.URL.IsAbs() || r.URL.Host != "":
		return bad(http.StatusBadRequest, "absolute_form", "the request's target does not begin with a slash")
	case len(r.Header["Host"]) > 0 && (len(r.Header["Host"]) > 1 || r.Header["Host"][0] != r.Host):
		return bad(http.StatusBadRequest, "host", "the request has two different hosts")
	}
	return checkTrailers(r)
}

// checkTrailers looks at those that were announced, and behind a body at those
// that came.
func checkTrailers(r *http.Request) *refusal {
	var buf [64]byte
	for name := range r.Trailer {
		if forbiddenTrailer(string(dashed(&buf, name))) || strings.Contains(strings.ToLower(name), "range") {
			return &refusal{status: http.StatusBadRequest, code: "trailer", message: "a field that decides about a request can't come behind its body"}
		}
	}
	return nil
}

// forbiddenTrailer names fields that RFC 9110, section 6.5.1, keeps out of
// trailers, and those that are judged or removed in a head.
func forbiddenTrailer(name string) bool {
	switch http.CanonicalHeaderKey(name) {
	case "Host", "Authorization", "Cookie", "Content-Length", "Transfer-Encoding", "Content-Encoding",
		"Content-Type", "Content-Range", "Expect", "Range", "Te", "Trailer", "Upgrade", "Connection", "Proxy-Authorization",
		"X-Http-Method-Override", "X-Http-Method", "X-Method-Override", "X-Original-Url", "X-Rewrite-Url", "X-Forwarded-Host",
		"X-Forwarded-Server", "X-Host", "Forwarded":
		return true
	}
	return false
}

// dropAliases removes fields that CGI and its heirs can't tell from ones that
// are judged or removed: HTTP_X_HTTP_METHOD_OVERRIDE comes from dashes and from
// underscores. nginx and Apache drop them too.
func dropAliases(h http.Header) {
	var buf [64]byte
	for name := range h {
		if strings.IndexByte(name, '_') >= 0 && forbiddenTrailer(string(dashed(&buf, name))) {
			delete(h, name)
		}
	}
}

// trailedBody is a body of HTTP/1 whose trailers are judged at its end: net/http
// takes those that the head didn't announce too, and passes them on beside one
// that it did.
type trailedBody struct {
	io.ReadCloser
	req *http.Request
}

// Read implements io.Reader.
func (b *trailedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		if fault := checkTrailers(b.req); fault != nil {
			return n, &errViolation{fault}
		}
	}
	return n, err
}

// checkHost requires Host or :authority to be the SNI, and a name pinned to the
// destination (invariant 7). It sets ex.host.
func checkHost(ex *exchange, r *http.Request) *refusal {
	wrong := &refusal{
		status: http.StatusMisdirectedRequest, code: egress.ReasonHostMismatch.String(),
		message: "the request's host is not the one that this connection was opened for: open a new connection for it",
	}
	host, port := splitAuthority(r.Host)
	defaultPort := uint16(80)
	if ex.guest.isTLS {
		defaultPort = 443
	}
	dst := ex.guest.dst()
	if port == 0 {
		port = defaultPort
	}
	// A mapped or forwarded port must be named as the guest dialled it; a
	// client that leaves it out means the scheme's own.
	if port != dst.Port() && port != defaultPort {
		return wrong
	}
	name := ex.guest.name
	if name.IsZero() || host != name.String() { // the usual one is not parsed again
		if addr, err := netip.ParseAddr(host); err == nil {
			if len(ex.guest.flow.Pinned) > 0 || addr.Unmap() != dst.Addr().Unmap() {
				return wrong
			}
			r.Host = authority(addr.Unmap().String(), dst.Port(), defaultPort)
			return nil
		}
		parsed, err := hostname.Parse(host)
		if err != nil || ex.guest.isTLS && parsed != name {
			return wrong
		}
		name = parsed
	}
	if !ex.guest.pinned(name) {
		return wrong
	}
	ex.host = name
	r.Host = authority(name.String(), dst.Port(), defaultPort)
	return nil
}

// splitAuthority splits "host", "host:port", "[v6]" and "[v6]:port"; a port
// that is no number makes the host unparsable.
func splitAuthority(s string) (string, uint16) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return strings.TrimSuffix(strings.TrimPrefix(s, "["), "]"), 0
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return "", 0
	}
	return host, uint16(n)
}

// authority writes a Host header in its normal form.
func authority(host string, port, defaultPort uint16) string {
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if port == defaultPort {
		return host
	}
	return host + ":" + strconv.Itoa(int(port))
}

// methods returns the request's method, and those that frameworks would take
// it for: a rule that allows POST must not let a DELETE through in its clothes.
func methods(r *http.Request) []string {
	out := []string{r.Method}
	for _, name := range []string{"X-Http-Method-Override", "X-Http-Method", "X-Method-Override"} {
		for _, v := range r.Header[name] {
			out = append(out, strings.ToUpper(strings.TrimSpace(v)))
		}
	}
	return out
}
