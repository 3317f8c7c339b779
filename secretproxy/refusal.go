package secretproxy

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/secretproxy/mask"
)

// refusal is an answer that the proxy gives itself. It never holds a value, a
// placeholder or bytes of an upstream.
type refusal struct {
	status  int
	code    string // stable, for programs
	rule    string // the rule that decided, if one did
	secret  string // the secret's name, for violations
	cause   string // the class of an upstream error
	message string // a sentence for people
}

// Error implements error, for refusals that turn up while a body is read.
func (r *refusal) Error() string { return r.message }

// refusalBody is the JSON of a refusal; docs/secrets.md lists its keys.
type refusalBody struct {
	Error   string `json:"error"`
	Reason  string `json:"reason"`
	Rule    string `json:"rule,omitempty"`
	Secret  string `json:"secret,omitempty"`
	Cause   string `json:"cause,omitempty"`
	Message string `json:"message"`
}

func (r *refusal) body() []byte {
	kind := "denied"
	switch {
	case r.status == http.StatusBadGateway:
		kind = "upstream"
	case r.secret != "":
		kind = "secret_violation"
	case r.status == http.StatusBadRequest:
		kind = "bad_request"
	}
	out, err := json.Marshal(refusalBody{kind, r.code, r.rule, r.secret, r.cause, r.message}) //nolint:gosec // the secret's name, not its value
	if err != nil {                                                                           // a struct of strings always encodes
		return []byte("{}\n")
	}
	return append(out, '\n')
}

// fill writes the header and returns the body.
func (r *refusal) fill(h http.Header) []byte {
	body := r.body()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Cache-Control", "no-store")
	// Tells a person at a terminal that no server said this.
	h.Set("X-Msb-Reason", r.code)
	return body
}

func (r *refusal) write(w http.ResponseWriter) {
	body := r.fill(w.Header())
	w.WriteHeader(r.status)
	_, _ = w.Write(body)
}

// raw is the refusal as HTTP/1.1 on a connection that is then closed.
func (r *refusal) raw() []byte {
	h := make(http.Header)
	body := r.fill(h)
	head := fmt.Sprintf("HTTP/1.1 %d %s\r\nConnection: close\r\n", r.status, http.StatusText(r.status))
	for _, k := range []string{"Content-Type", "Content-Length", "Cache-Control", "X-Msb-Reason"} {
		head += k + ": " + h.Get(k) + "\r\n"
	}
	return append([]byte(head+"\r\n"), body...)
}

// refuse answers a request and writes its audit event.
func (p *Proxy) refuse(w http.ResponseWriter, ex *exchange, r *refusal) {
	p.auditRefusal(ex, r)
	if ex.last || ex.http1 && ex.hasBody {
		// The rest of the body would be read as the next request otherwise.
		w.Header().Set("Connection", "close")
	}
	r.write(w)
}

// redact puts the secret's name in the place of each placeholder.
func (ex *exchange) redact(text string) string {
	t := ex.state.table.Load()
	out, hit, err := t.finder.Replace(text, func(h mask.Hit) ([]byte, error) {
		return []byte("[" + t.secrets[h.Needle].holder.Policy().Name + "]"), nil
	})
	if !hit || err != nil {
		return text
	}
	return out
}

// refusalEvent is the line of the log about a refused request.
func refusalEvent(p *Proxy, ex *exchange, r *refusal) audit.Event {
	e := exchangeEvent(p, ex)
	e.Action, e.Rule, e.Reason, e.Message, e.Status = egress.Deny.String(), r.rule, r.code, r.message, r.status
	// What the guest chose may hold a placeholder, which no line of the log does.
	for _, text := range []*string{&e.Method, &e.Path, &e.Overrides, &e.Message} {
		*text = ex.redact(*text)
	}
	return e
}

func (p *Proxy) auditRefusal(ex *exchange, r *refusal) {
	e := refusalEvent(p, ex, r)
	if r.status == http.StatusBadGateway {
		e.Action = ex.verdict.Action.String()
		e.Rule = ex.verdict.Rule
		p.counters.upstreamErrors.Add(1)
	} else {
		p.counters.denied.Add(1)
	}
	p.auditViolation(ex, r)
	p.cfg.Audit.Emit(e)
	ex.audited = true
}

// auditViolation writes the line about a request's violation, if it is one, the first time that it is called.
func (p *Proxy) auditViolation(ex *exchange, r *refusal) {
	if r.secret == "" || !ex.used.firstViolation() {
		return
	}
	p.counters.violations.Add(1)
	v := refusalEvent(p, ex, r)
	v.Kind, v.Secret, v.Place = audit.SecretViolation, r.secret, ex.place
	p.cfg.Audit.Emit(v)
}
