package grants

import "github.com/msb-project/msb/policies"

// Holds are what Of found behind the sources of a policy, apart from the policy:
// its text form (policies.Encode) has no place for them.
type Holds struct {
	Secrets map[string]*policies.Hold `json:"secrets,omitempty"` // by the secret's name
	Roots   map[string][]byte         `json:"roots,omitempty"`   // by the file, in PEM form
}

// HoldsOf takes the holds out of a policy that Of returned.
func HoldsOf(p *policies.Policy) Holds {
	h := Holds{Secrets: map[string]*policies.Hold{}, Roots: map[string][]byte{}}
	for _, s := range p.Secrets {
		if s.From.Hold != nil {
			h.Secrets[s.Name] = s.From.Hold
		}
	}
	for _, ca := range p.TLS.ExtraCA {
		if ca.PEM != nil {
			h.Roots[ca.File] = ca.PEM
		}
	}
	return h
}

// Apply puts them into p, which nobody else has yet.
func (h Holds) Apply(p *policies.Policy) {
	for i := range p.Secrets {
		p.Secrets[i].From.Hold = h.Secrets[p.Secrets[i].Name]
	}
	for i := range p.TLS.ExtraCA {
		if pem, ok := h.Roots[p.TLS.ExtraCA[i].File]; ok {
			p.TLS.ExtraCA[i].PEM = pem
		}
	}
}
