package review_test

import (
	"crypto/tls"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/msb-project/msb/internal/pcapgen"
)

// The servers' addresses.
const (
	goodSite  = "93.184.215.14:443"
	otherSite = pcapgen.OtherSite + ":443"
)

// site is a server of the internet that notes what it is asked.
type site struct {
	s    *session
	name string

	mu    sync.Mutex
	asked []sent
}

// sent is a request as the server got it.
type sent struct {
	Method, Host, Path string // Path has the query
	Header, Trailer    http.Header
	Body               string
	Cut                bool // the body broke off
}

// site starts a TLS server at addr with a certificate for name that the gateway trusts. A nil answer says
// "hello from NAME to CREDENTIALS", so that a value comes back wherever one was sent.
func (s *session) site(name, addr string, answer http.HandlerFunc) *site {
	s.t.Helper()
	return s.siteWith(name, addr, s.CA.Certificate(name), answer)
}

// siteWith is site with another certificate.
func (s *session) siteWith(name, addr string, cert tls.Certificate, answer http.HandlerFunc) *site {
	s.t.Helper()
	w := &site{s: s, name: name}
	if answer == nil {
		answer = func(rw http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(rw, "hello from "+name+" to "+r.Header.Get("Authorization"))
		}
	}
	s.ServeHTTPS(addr, cert, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		w.mu.Lock()
		w.asked = append(w.asked, sent{r.Method, r.Host, r.RequestURI, r.Header.Clone(), r.Trailer.Clone(), string(body), err != nil})
		w.mu.Unlock()
		answer(rw, r)
	}))
	return w
}

// all are the requests so far.
func (w *site) all() []sent {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]sent(nil), w.asked...)
}

// got asserts which requests came, in their order: "GET /repos/a", or with the host behind the method
// where that isn't the site's own.
func (w *site) got(want ...string) []sent {
	w.s.t.Helper()
	return w.these(w.all(), want)
}

// whole is got for those whose bodies did not break off. A body is searched while it passes, so of one with a
// placeholder in a wrong place the server gets what stood before it, and nothing of the placeholder.
func (w *site) whole(want ...string) []sent {
	w.s.t.Helper()
	const before = 8 // bytes; no script has more in front of such a placeholder
	all := w.all()
	for _, a := range all {
		if a.Cut && (len(a.Body) > before || strings.Contains(a.Body, "_")) {
			w.s.t.Errorf("of a refused body %s got %q", w.name, a.Body)
		}
	}
	return w.these(slices.DeleteFunc(all, func(a sent) bool { return a.Cut }), want)
}

func (w *site) these(all []sent, want []string) []sent {
	w.s.t.Helper()
	var lines []string
	for _, a := range all {
		line := a.Method + " "
		if a.Host != w.name {
			line += a.Host
		}
		lines = append(lines, line+a.Path)
	}
	if strings.Join(lines, "\n") != strings.Join(want, "\n") {
		w.s.t.Fatalf("%s was asked %q, want %q", w.name, lines, want)
	}
	return all
}

// credentials are the Authorization fields of a request.
func (a *sent) credentials() string { return strings.Join(a.Header["Authorization"], "|") }
