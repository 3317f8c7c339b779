package policies

import "fmt"

// validate checks a policy that was put together in code: every rule and secret
// on its own, and what they mean together. Policies from Load and Parse have
// been through it. The error is an ErrorList.
func validate(p *Policy) error {
	f := &faults{file: p.File}
	for i, r := range p.Egress.Allow {
		f.checkRule(fmt.Sprintf("egress.allow[%d]", i), true, r)
	}
	for i, r := range p.Egress.Deny {
		f.checkRule(fmt.Sprintf("egress.deny[%d]", i), false, r)
	}
	for _, s := range p.Secrets {
		f.checkSecret(joinKey("secrets", s.Name), s)
	}
	if p.TLS.Via != "" {
		if err := checkVia(p.TLS.Via); err != nil {
			f.addErr("tls.via", err)
		}
	}
	if len(p.DNS.Servers) == 0 {
		f.add("dns.servers", "it is empty", "name \"system\" for the host's own")
	}
	for i, r := range p.Ingress.Allow {
		f.checkIngressRule(fmt.Sprintf("ingress.allow[%d]", i), &r)
	}
	f.checkAgent(p)
	f.checkNames(p)
	f.checkTogether(p)
	if err := f.err(); err != nil {
		return err
	}
	if p.Floor != nil {
		return validate(p.Floor)
	}
	return nil
}
