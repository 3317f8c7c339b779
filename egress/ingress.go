package egress

import (
	"net/netip"

	"github.com/msb-project/msb/policies"
)

// Admit judges a client of a published port. ours says that it is this machine itself, which always may connect. Report
// mode is about what leaves a sandbox, and lets nobody in.
func Admit(p *policies.Policy, client netip.Addr, ours bool) Verdict {
	if ours {
		return Verdict{Action: Allow, Reason: ReasonThisMachine}
	}
	if rule, ok := p.Admits(client); ok {
		return Verdict{Action: Allow, Rule: rule, Reason: ReasonRule}
	}
	return Verdict{Action: Deny, Reason: ReasonNoRule}
}

// AdmitPod is Admit for a port of a pod: as long as no rule is about clients' addresses, all may connect.
func AdmitPod(p *policies.Policy, client netip.Addr, ours bool) Verdict {
	if ours {
		return Verdict{Action: Allow, Reason: ReasonThisMachine}
	}
	switch rule, ok := p.AdmitsToPod(client); {
	case !ok:
		return Verdict{Action: Deny, Reason: ReasonNoRule}
	case rule == "":
		return Verdict{Action: Allow, Reason: ReasonPodOpen}
	default:
		return Verdict{Action: Allow, Rule: rule, Reason: ReasonRule}
	}
}

// AdmitSandbox judges another sandbox that connects to a TCP port of the guest. No rule of the machine's own is asked:
// what runs in that sandbox is no program of this machine.
func AdmitSandbox(p *policies.Policy, name string, port uint16) Verdict {
	if rule, ok := p.AdmitsSandbox(name, port); ok {
		return Verdict{Action: Allow, Rule: rule, Reason: ReasonRule}
	}
	return Verdict{Action: Deny, Reason: ReasonNoRule}
}
