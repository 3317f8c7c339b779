package secretproxy

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/secretproxy/memory"
	"github.com/msb-project/msb/secretproxy/sigv4"
)

// sign replaces the signature that the guest made with placeholder credentials
// by one made with the real ones. It reports whether the request was signed
// with a placeholder; the real key itself is never sent.
func (s *swapper) sign() bool {
	values := s.req.Header["Authorization"]
	if len(values) != 1 || !strings.HasPrefix(values[0], sigv4.Scheme) {
		return false
	}
	e := s.ex.table.find(values[0])
	if e == nil {
		return false
	}
	policy := e.holder.Policy()
	credential, ok := sigv4.ParseCredential(values[0])
	if policy.Kind != policies.SigV4 || !ok || credential.Key != e.placeholder || !s.ex.guest.isTLS || !s.ex.mayGo(e) {
		return false // the search of the headers makes a violation of it
	}
	if !slices.Contains(policy.Services, credential.Service) || !slices.Contains(policy.Regions, credential.Region) {
		s.violation(e, "sigv4", "secret "+policy.Name+" may not sign for this service or region")
		return true
	}
	if fault := s.signAs(e, credential); fault != nil {
		s.fault = fault
		return true
	}
	s.ex.used.add(e)
	return true
}

func (s *swapper) signAs(e *entry, c sigv4.Credential) *refusal {
	bad := func(code, message string) *refusal {
		return &refusal{status: http.StatusForbidden, code: code, rule: s.ex.verdict.Rule, secret: e.holder.Policy().Name, message: message}
	}
	keys, err := sigv4.ParseKeys(s.present(e).Reveal())
	if s.fault != nil {
		return s.fault
	}
	if err != nil {
		return bad("sigv4_credentials", "the source of secret "+e.holder.Policy().Name+" holds no AWS credentials: "+err.Error())
	}
	switch err := sigv4.Sign(s.req, keys, c, s.ex.held, s.proxy.cfg.now().UTC()); {
	case errors.Is(err, memory.ErrFull):
		return memoryFull()
	case errors.Is(err, sigv4.ErrTooLarge):
		fault := bad("sigv4_payload", err.Error())
		fault.status = http.StatusRequestEntityTooLarge
		return fault
	case errors.Is(err, sigv4.ErrPayload):
		return bad("sigv4_payload", err.Error())
	case err != nil:
		return bad("sigv4", sigv4.ErrSign.Error())
	}
	return nil
}
