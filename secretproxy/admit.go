package secretproxy

import (
	"net/http"
	"strings"

	"github.com/msb-project/msb/egress"
)

// admit refuses requests for another host than their connection's, and those that the policy
// denies. Nothing has acted on the request before.
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
	// The rules in force now apply to the connection too: a reload may have come since it was opened.
	v, done := ex.guest.requests.Request(&f)
	ex.ends = append(ex.ends, done)
	return v
}

// methods returns the request's method, and those that override fields make frameworks use
// instead: a rule that allows POST must not let through a POST that is handled as a DELETE.
func methods(r *http.Request) []string {
	out := []string{r.Method}
	for _, name := range []string{"X-Http-Method-Override", "X-Http-Method", "X-Method-Override"} {
		for _, v := range r.Header[name] {
			out = append(out, strings.ToUpper(strings.TrimSpace(v)))
		}
	}
	return out
}
