package secretproxy

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/secretproxy/mask"
	"github.com/msb-project/msb/secretproxy/secretstore"
)

// swapper puts values in the place of placeholders of one request.
type swapper struct {
	proxy *Proxy
	ex    *exchange
	req   *http.Request
	fault *refusal
	grown int64 // by values in the head
	// streams is set when the request goes out: what is put into it from then on is audited at once.
	streams bool
	// values are those this request carries, each read once.
	values map[*entry]secretstore.Secret
}

// swap puts the real values into r. A placeholder in any place that its secret
// doesn't list, or for a host that isn't its own, is a violation.
func (p *Proxy) swap(ex *exchange, r *http.Request) *refusal {
	// Whatever the host: a server that got a value may show it elsewhere, by another of its names or in
	// plain HTTP.
	ex.masked = p.known.masks()
	if ex.masked {
		if fault := readable(r.Header); fault != nil {
			return fault
		}
	}
	if ex.table.finder.Empty() {
		return nil
	}
	s := &swapper{proxy: p, ex: ex, req: r}
	s.forbid(r.Method, "method")
	s.target()
	signed := s.fault == nil && s.sign()
	for name, values := range r.Header {
		s.forbid(name, "header name")
		if signed && (name == "Authorization" || name == "X-Amz-Security-Token") {
			continue // ours
		}
		for i := range values {
			values[i] = s.header(name, values[i])
		}
	}
	for name := range r.Trailer { // sent with the head, before the body is searched
		s.forbid(name, "trailer")
	}
	if s.fault != nil {
		return s.fault
	}
	s.ex.table = &table{secrets: s.ex.table.secrets} // an open upload or answer would keep a finder that has been replaced
	s.body()
	p.auditSwaps(ex, ex.used.list())
	s.streams = true
	return s.fault
}

// auditSwaps writes an event for each secret whose value went out.
func (p *Proxy) auditSwaps(ex *exchange, used []*entry) {
	for _, e := range used {
		event := exchangeEvent(p, ex)
		event.Kind, event.Secret, event.Action, event.Rule = audit.SecretSwap, e.holder.Policy().Name, ex.verdict.Action.String(), ex.verdict.Rule
		p.cfg.Audit.Emit(event)
	}
	if len(used) > 0 {
		p.counters.swaps.Add(1)
	}
}

// forbid makes any placeholder in text a violation.
func (s *swapper) forbid(text, place string) {
	s.forbidIn(s.ex.table, text, place)
}

func (s *swapper) forbidIn(t *table, text, place string) {
	if e := t.find(text); e != nil {
		s.violation(e, place, "")
	}
}

// violation notes the first one; a request has one answer.
func (s *swapper) violation(e *entry, place, message string) {
	if s.fault != nil {
		return
	}
	s.fault = s.ex.violation(e, place, message)
}

// codeForeign is the reason for a placeholder of another sandbox.
const codeForeign = "secret_of_parent"

// violation makes the refusal for a placeholder where its value may not go.
func (ex *exchange) violation(e *entry, place, message string) *refusal {
	name := e.holder.Policy().Name
	ex.place = place
	if e.foreign {
		return &refusal{
			status: http.StatusForbidden, code: codeForeign, rule: ex.verdict.Rule, secret: name,
			message: "the placeholder of secret " + name + " is that of the sandbox from which this one was cloned; its own is in the variable " + name + " of new commands",
		}
	}
	code := "secret_place"
	if message == "" {
		message = "the placeholder of secret " + name + " stands in a place (" + place + ") or a spelling in which its value may not be sent"
	}
	switch {
	case !ex.guest.isTLS:
		code, message = "secret_plain_http", "the placeholder of secret "+name+" was sent over plain HTTP; values go over verified TLS only"
	case ex.wrongPort(e):
		code, message = "secret_port", fmt.Sprintf("the placeholder of secret %s was sent to port %d of its host, which is not the port that its hosts name", name, ex.guest.dst().Port())
	case !ex.mayGo(e):
		code, message = "secret_host", "the placeholder of secret "+name+" was sent to a host that is not one of its hosts"
	}
	return &refusal{status: http.StatusForbidden, code: code, rule: ex.verdict.Rule, secret: name, message: message}
}

// WhyViolation is a sentence about the reason of a refusal of a placeholder, "" for any other reason.
func WhyViolation(reason string) string {
	switch reason {
	case "secret_place":
		return "a secret's placeholder stands in a place or a spelling in which its value may not be sent; send the variable as it is, in one of the secret's places (in)"
	case "secret_host":
		return "a secret's placeholder was sent to a host that is not one of the secret's hosts"
	case "secret_port":
		return "a secret's placeholder was sent to another port of its host than the secret's hosts name"
	case "secret_plain_http":
		return "a secret's placeholder was sent over plain HTTP; its value goes over verified TLS only"
	}
	return ""
}

// violated stops the sandbox if the secret asks for it.
func (p *Proxy) violated(ex *exchange, r *refusal) {
	if r.secret == "" || r.code == codeForeign { // which a clone may hold without having done anything
		return
	}
	e := ex.state.byName(r.secret)
	if e == nil || e.holder.Policy().OnViolation != policies.Terminate || !p.terminated.CompareAndSwap(false, true) {
		return
	}
	p.work.Go(func() { p.cfg.Terminate("violation of secret " + r.secret + ": " + r.message) })
}

// header returns a header's value with placeholders replaced where they may be.
func (s *swapper) header(name, value string) string {
	if s.fault != nil || s.ex.table.finder.TooShort(len(value)) {
		return value
	}
	if credentials, ok := basic(name, value); ok {
		return s.basic(value, credentials)
	}
	return s.replace(value, policies.Place{Kind: policies.InHeader, Name: name}, nil)
}

// basic returns the decoded credentials of an Authorization header.
func basic(name, value string) (string, bool) {
	const scheme = "basic "
	if name != "Authorization" && name != "Proxy-Authorization" || len(value) < len(scheme) || !strings.EqualFold(value[:len(scheme)], scheme) {
		return "", false
	}
	encoded := strings.TrimRight(strings.TrimSpace(value[len(scheme):]), "=")
	decoded, err := base64.RawStdEncoding.DecodeString(encoded)
	return string(decoded), err == nil
}

func (s *swapper) basic(value, credentials string) string {
	out := s.replace(credentials, policies.Place{Kind: policies.InBasic}, nil)
	if out == credentials {
		return value
	}
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(out))
}

// target looks at path and query, and replaces in listed parameters.
func (s *swapper) target() {
	u := s.req.URL
	s.forbid(s.ex.path, "path")
	if u.RawQuery == "" || s.fault != nil {
		return
	}
	if _, ok := s.ex.table.finder.Find(u.RawQuery); !ok {
		return
	}
	pairs := strings.Split(u.RawQuery, "&")
	for i, pair := range pairs {
		pairs[i] = s.parameter(pair)
	}
	u.RawQuery = strings.Join(pairs, "&")
}

func (s *swapper) parameter(pair string) string {
	rawName, rawValue, hasValue := strings.Cut(pair, "=")
	s.forbid(rawName, "query name")
	if !hasValue {
		return pair
	}
	name, err := url.QueryUnescape(rawName)
	if err != nil || strings.Contains(rawValue, ";") {
		// Servers that split at semicolons would see another parameter.
		s.forbid(rawValue, "query")
		return pair
	}
	// The value goes in escaped; text around it stays as the guest wrote it.
	out := s.replace(rawValue, policies.Place{Kind: policies.InQuery, Name: name}, func(value []byte) []byte {
		return []byte(url.QueryEscape(string(value)))
	})
	return rawName + "=" + out
}

// replace puts values into text, which stands in that place.
func (s *swapper) replace(text string, place policies.Place, escape func([]byte) []byte) string {
	out, hit, err := s.ex.table.finder.Replace(text, func(h mask.Hit) ([]byte, error) {
		return s.value(s.ex.table, &h, place, escape)
	})
	if err != nil || !hit {
		return text
	}
	return out
}

// errViolation ends a replacement, or the reading of a body, with a refusal.
type errViolation struct{ refusal *refusal }

// Error implements error.
func (e *errViolation) Error() string { return e.refusal.message }

// value is what stands in the place of a placeholder that t has found.
func (s *swapper) value(t *table, h *mask.Hit, place policies.Place, escape func([]byte) []byte) ([]byte, error) {
	mayStand := func(e *entry) bool {
		return s.ex.mayGo(e) && slices.Contains(e.holder.Policy().In, place)
	}
	e := t.secrets[h.Needle]
	allowed := h.Exact && s.ex.guest.isTLS && !e.foreign
	if allowed && !mayStand(e) {
		e = s.twin(t, e, mayStand)
	}
	if !allowed || !mayStand(e) {
		s.violation(e, place.String(), "")
		return nil, &errViolation{s.fault}
	}
	if s.fault = cmp.Or(s.fault, s.ex.revoked(s.proxy, e, place.String(), mayStand)); s.fault != nil {
		return nil, &errViolation{s.fault}
	}
	value := s.present(e).Reveal()
	if s.fault != nil {
		return nil, &errViolation{s.fault}
	}
	if secretstore.InHead(place) && bytes.ContainsAny(value, "\r\n\x00") {
		s.violation(e, place.String(), "secret "+e.holder.Policy().Name+" has no value that could be sent there")
		return nil, &errViolation{s.fault}
	}
	if s.ex.used.add(e) && s.streams {
		s.proxy.auditSwaps(s.ex, []*entry{e})
	}
	if escape != nil {
		value = escape(value)
	}
	if place.Kind != policies.InBody && !s.grow(int64(len(value))) {
		return nil, &errViolation{s.fault}
	}
	return value, nil
}

// revoked returns the violation if a reload took the secret away, or from this host, or from a place. Uploads and messages
// that are under way have the table of their beginning, so that they hold one value throughout (attack: an upload that is
// kept open for years).
func (ex *exchange) revoked(p *Proxy, e *entry, place string, mayStand func(*entry) bool) *refusal {
	st := p.state.Load()
	if st == ex.state {
		return nil
	}
	entries := st.table.Load().secrets
	i := slices.IndexFunc(entries, func(now *entry) bool { return now.placeholder == e.placeholder })
	switch {
	case i < 0:
		return ex.violation(e, place, "secret "+e.holder.Policy().Name+" was taken out of the policy while the request was under way")
	case !mayStand(entries[i]):
		return ex.violation(entries[i], place, "")
	}
	return nil
}

// twin returns another secret with the same value that is allowed in this place, e if there is none. Answers
// hold one placeholder for a value, whichever of its secrets the guest sent, and
// the guest sends it back.
func (s *swapper) twin(t *table, e *entry, mayStand func(*entry) bool) *entry {
	for _, other := range t.secrets {
		if other != e && mayStand(other) && bytes.Equal(s.present(other).Reveal(), s.present(e).Reveal()) {
			return other
		}
	}
	return e
}

// grow takes the room for a value in the head.
func (s *swapper) grow(n int64) bool {
	if s.grown += n; s.grown > maxSwappedHead {
		s.fault = &refusal{
			status: http.StatusRequestHeaderFieldsTooLarge, code: "head_too_large",
			message: "with the values in their places the request's head is larger than 1 MiB",
		}
	} else if !s.ex.held.Take(2 * n) { // text, and the head as it's written
		s.fault = memoryFull()
	}
	return s.fault == nil
}

// present returns the value that this request carries: read once, so that a
// rotation in the middle of a body doesn't make two of it.
func (s *swapper) present(e *entry) secretstore.Secret {
	if v, ok := s.values[e]; ok {
		return v
	}
	if s.values == nil {
		s.values = make(map[*entry]secretstore.Secret)
	}
	current, err := e.holder.Current(s.req.Context()) // on an error the last good value stays
	s.fault = cmp.Or(s.fault, notKept(err))
	s.values[e] = current
	return current
}
