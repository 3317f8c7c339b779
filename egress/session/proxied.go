package session

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"os"

	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/egress/httphead"
	"github.com/msb-project/msb/hostname"
)

// NameError is wrapped by the error that Resolved is called with where the resolver refused the name. Any other
// error says that it could not be resolved.
type NameError struct {
	// Reason is the resolver's, for a name that the policy allows.
	Reason egress.Reason
	Err    error
}

// Error implements error.
func (e *NameError) Error() string { return "the name is refused: " + e.Err.Error() }

// Unwrap returns Err.
func (e *NameError) Unwrap() error { return e.Err }

// proxied is a request to the explicit proxy.
type proxied struct {
	client, proxy netip.AddrPort
	request       httphead.ProxyRequest
	addrs         []netip.Addr // not judged yet
	denied        []Judged     // not reported yet
	dialErr       error
	// tunnel says that the client has the answer to its CONNECT: it succeeded.
	tunnel bool
}

func (p *proxied) skip(j Judged) { p.denied = append(p.denied, j) }

// skipped takes the denials that were not reported yet.
func (s *Session) skipped() []Judged {
	if s.proxied == nil {
		return nil
	}
	denied := s.proxied.denied
	s.proxied.denied = nil
	return denied
}

// Proxied returns the request to the explicit proxy and the proxy's address, nil for any other flow and before
// the request is read.
func (s *Session) Proxied() (*httphead.ProxyRequest, netip.AddrPort) {
	if s.proxied == nil || s.proxied.request.Port == 0 {
		return nil, netip.AddrPort{}
	}
	return &s.proxied.request, s.proxied.proxy
}

// proxyRequest reads a request to the explicit proxy.
func (s *Session) proxyRequest(b []byte, end Ending) Step {
	p := s.proxied
	request, err := httphead.ParseProxy(b)
	switch {
	case errors.Is(err, httphead.ErrIncomplete) && end == More:
		return Step{Action: NeedBytes}
	case errors.Is(err, httphead.ErrIncomplete): // the client said nothing, or closed
		s.state = stateOver
		s.verdict = egress.Verdict{Reason: egress.ReasonUnreadable, Addr: s.flow.Dst.Addr()}
		return Step{Action: Refuse, Decided: true}
	case err != nil:
		s.state = stateOver
		s.verdict = egress.Verdict{Reason: egress.ReasonUnreadable, Addr: s.flow.Dst.Addr()}
		return Step{Action: Refuse, Decided: true, Refusal: Refusal{
			status: http.StatusBadRequest, body: proxyBody{"bad_request", s.verdict.Reason.String(), "", err.Error()},
		}}
	}
	p.request = request
	switch {
	case request.Connect && request.Port == dnsPort:
		s.state = stateOver
		return Step{Action: ToDNS} // as every flow to that port
	case !request.Name.IsZero():
		s.state, s.flow.Name = stateNaming, request.Name
		return Step{Action: NeedNames, Name: request.Name}
	}
	p.addrs = []netip.Addr{request.Addr}
	return s.nextAddr()
}

// Resolved takes the addresses of a NeedNames.
func (s *Session) Resolved(addrs []netip.Addr, err error) Step {
	p := s.proxied
	switch {
	case s.state != stateNaming:
		return Step{Action: Continue}
	case len(addrs) > 0:
		p.addrs = addrs
		return s.nextAddr()
	}
	s.state = stateOver
	if refused := (*NameError)(nil); errors.As(err, &refused) {
		s.verdict = s.refusedName(p.request.Name, refused.Reason)
		return Step{Action: Refuse, Refusal: denial(s.verdict)}
	}
	text := "no address"
	if err != nil {
		text = err.Error()
	}
	return Step{Action: Refuse, Refusal: Refusal{status: http.StatusBadGateway, body: proxyBody{"upstream", "upstream_name", "", text}}}
}

// refusedName is the verdict on a name that was not resolved: where the policy allows the name, for the
// resolver's own reason, such as a bound or addresses that the name may not have.
func (s *Session) refusedName(name hostname.Name, reason egress.Reason) egress.Verdict {
	v := s.rules.Engine.DecideName(name)
	if v.Action != egress.Deny {
		v = egress.Verdict{Reason: reason, Name: name}
	}
	return v
}

// nextAddr judges the flow to the next of the target's addresses.
func (s *Session) nextAddr() Step {
	p := s.proxied
	if len(p.addrs) == 0 {
		s.state = stateOver
		refusal := denial(s.verdict)
		if p.dialErr != nil {
			refusal = Refusal{status: http.StatusBadGateway, body: dialRefusal(p.dialErr)}
		}
		return Step{Action: Refuse, Skipped: s.skipped(), Refusal: refusal}
	}
	s.newFlow(egress.TCP, p.client, netip.AddrPortFrom(p.addrs[0], p.request.Port))
	p.addrs = p.addrs[1:]
	s.narrow(p.request.Name)
	step := s.connect(s.decide())
	switch step.Action {
	case NeedBytes, Inspect: // the client speaks first, and nothing is dialled before
		p.tunnel = true
	case Drop, Reject, Refuse, NeedNames, Wait, Dial, Relay, ToDNS, Continue, End:
	}
	return step
}

// dialRefusal gives the class of an error only: its text would tell the guest about the host's network.
func dialRefusal(err error) proxyBody {
	var netErr net.Error
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &netErr) && netErr.Timeout() {
		return proxyBody{"upstream", "upstream_timeout", "", "the server did not answer in time"}
	}
	return proxyBody{"upstream", "upstream_refused", "", "the server could not be connected to"}
}
