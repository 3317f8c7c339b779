package policies

// SSH says which of the ways back to the SSH client's machine a guest may have. The zero value is none of them: all lead
// around what Egress says.
type SSH struct {
	// AgentForwarding lets the guest use the client's ssh agent (ssh -A).
	AgentForwarding bool
	// ReverseForwarding lets the guest's programs connect to what the client names (ssh -R).
	ReverseForwarding bool
	// X11Forwarding lets the guest's programs use the client's display (ssh -X, -Y).
	X11Forwarding bool
}

// AllowsSSH reports whether p and each floor below it allow what allowed reads. floor tells that p does, and a floor
// doesn't.
func (p *Policy) AllowsSSH(allowed func(SSH) bool) (ok, floor bool) {
	if !allowed(p.SSH) {
		return false, false
	}
	for f := p.Floor; f != nil; f = f.Floor {
		if !allowed(f.SSH) {
			return false, true
		}
	}
	return true, false
}

func (c *converter) ssh(s *SSH, f *fileSSH) {
	for _, k := range []struct {
		key  string
		from *bool
		to   *bool
	}{
		{"ssh.agent_forwarding", f.AgentForwarding, &s.AgentForwarding},
		{"ssh.reverse_forwarding", f.ReverseForwarding, &s.ReverseForwarding},
		{"ssh.x11_forwarding", f.X11Forwarding, &s.X11Forwarding},
	} {
		if k.from != nil {
			c.scalar(k.key)
			*k.to = *k.from
		}
	}
}

func (w *writer) ssh(s SSH) {
	if s == (SSH{}) {
		return
	}
	w.table("ssh")
	optional(w, "agent_forwarding", s.AgentForwarding)
	optional(w, "reverse_forwarding", s.ReverseForwarding)
	optional(w, "x11_forwarding", s.X11Forwarding)
}
