package secretproxy

import (
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/msb-project/msb/egress/httphead"
)

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
