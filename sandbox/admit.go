package sandbox

import (
	"fmt"
	"slices"
	"strings"

	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/policies/grants"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// GrantsError says what a policy file takes from this machine that its user has not approved.
type GrantsError struct {
	// File is the policy file, as it was named.
	File string
	// New is what is missing, All what the file takes.
	New, All grants.Set
}

// Error names each grant and the way to approve it.
func (e *GrantsError) Error() string {
	return fmt.Sprintf("%s takes from this machine what you have not approved:\n  %s\nlook at it, then run `msb policy trust %s`",
		e.File, strings.Join(e.New.Lines(), "\n  "), policies.QuoteArgs([]string{e.File}))
}

// Admission is a policy that may run, and what it may take.
type Admission struct {
	// Policy is the policy, its sources bound to what was found behind them.
	Policy *policies.Policy
	// Grants are what Policy takes. A later version of its file may not take more.
	Grants grants.Set
	// Credentials says whether an image that the policy names may be pulled with the user's credentials.
	Credentials bool

	state string // msb's state directory
}

// AdmitOptions say what approves a policy in addition to the user's stored approvals.
type AdmitOptions struct {
	// Floor is the operator's policy above; nil for none.
	Floor *policies.Policy
	// Trust approves everything.
	Trust bool
	// Kept is what was approved when the sandbox was made.
	Kept grants.Set
}

// Admit checks what a policy takes from this machine. A policy that was made in code, and the rules of flags, may take what
// they say; a policy from a file may take what its user approved. Anything else is a *GrantsError. Under a floor whose own
// grants are approved, it may take what the floor names (policies.Tighten refuses the rest, approved or not), unless a
// command would run the files of another tree than the floor's.
func (t Trust) Admit(p *policies.Policy, o AdmitOptions) (*Admission, error) {
	set, held, err := grants.Of(p, grants.Options{State: t.home.dir})
	if err != nil {
		return nil, state.FailAs(KindGrants, fmt.Errorf("%s: %w", p.File, err))
	}
	a := &Admission{Policy: held, Grants: set, Credentials: true, state: t.home.dir}
	if o.Trust || p.Path == "" {
		a.Credentials = o.Floor == nil || o.Floor.Sandbox.Image == p.Sandbox.Image
		return a, nil
	}
	approved, err := t.Approved(p.Path)
	if err != nil {
		return nil, err
	}
	flags, err := grantsOfFlags(t.home, p)
	if err != nil {
		return nil, err
	}
	approved = slices.Concat(approved, o.Kept, flags)
	missing := set.Beyond(approved)
	byFloor := false
	if o.Floor != nil {
		if byFloor, err = trustedFloor(t.home, o.Floor, held); err != nil {
			return nil, err
		}
	}
	if len(missing) > 0 && !byFloor {
		return nil, state.FailAs(KindGrants, &GrantsError{File: p.File, New: missing, All: needed(set, approved)})
	}
	a.Grants = needed(set, approved)
	a.Credentials = !slices.ContainsFunc(set, func(g grants.Grant) bool { return g.Optional() && !approved.Has(g) })
	if o.Floor != nil {
		a.Credentials = (a.Credentials || byFloor) && o.Floor.Sandbox.Image == p.Sandbox.Image
	}
	return a, nil
}

// trustedFloor reports whether what a floor names is approved for a policy under it: all of the floor's grants are
// approved, or the floor was made in code, and the policy's commands run the floor's files. A floor that names "sh
// ./get-token" means the script beside the floor, not one beside the policy.
func trustedFloor(h *Home, floor, p *policies.Policy) (bool, error) {
	set, held, err := grants.Of(floor, grants.Options{State: h.dir})
	if err != nil {
		return false, state.FailAs(KindGrants, fmt.Errorf("%s: %w", floor.File, err))
	}
	for _, s := range p.Secrets {
		same := func(o policies.Secret) bool { return sameFiles(o.From.Hold, s.From.Hold) }
		if s.From.Kind == policies.FromCommand && runsFiles(s.From.Hold) && !slices.ContainsFunc(held.Secrets, same) {
			return false, nil
		}
	}
	if floor.Path == "" {
		return true, nil
	}
	approved, err := h.Trust().Approved(floor.Path)
	return len(set.Beyond(approved)) == 0, err
}

// runsFiles reports whether a command with this binding may run files of its policy's tree.
func runsFiles(h *policies.Hold) bool { return h != nil && (h.Program != "" || h.Content != "") }

// sameFiles reports whether two commands may run the same files of the same trees.
func sameFiles(a, b *policies.Hold) bool {
	return runsFiles(a) && a.Path == b.Path && a.Dir == b.Dir && a.Program == b.Program && slices.Equal(a.Trees, b.Trees)
}

// grantsOfFlags are the grants that come from no file: the user wrote them on the command line.
func grantsOfFlags(h *Home, p *policies.Policy) (grants.Set, error) {
	own := policies.Default() // so that no key is in it but those of flags
	own.File, own.Path, own.Include, own.Included = p.File, p.Path, p.Include, p.Included
	own.Egress.Allow = slices.DeleteFunc(slices.Clone(p.Egress.Allow), func(r policies.Rule) bool { return r.Pos != policies.Position{} })
	own.Hosts = slices.DeleteFunc(slices.Clone(p.Hosts), func(m policies.HostMapping) bool { return m.Pos != policies.Position{} })
	own.Secrets = slices.DeleteFunc(slices.Clone(p.Secrets), func(s policies.Secret) bool { return s.Pos != policies.Position{} })
	return h.Trust().Grants(own)
}

// needed drops grants that are taken only if they are needed, unless they were approved before.
func needed(set, approved grants.Set) grants.Set {
	return slices.DeleteFunc(slices.Clone(set), func(g grants.Grant) bool { return g.Optional() && !approved.Has(g) })
}

// Reload admits a later version of a policy file for a running sandbox: it may take what the version before took, whatever
// was approved meanwhile.
func (a *Admission) Reload(p *policies.Policy) (*policies.Policy, error) {
	return grants.Reload(p, a.Grants, grants.Options{State: a.state})
}

// Grants are what a policy takes from this machine.
func (t Trust) Grants(p *policies.Policy) (grants.Set, error) {
	set, _, err := grants.Of(p, grants.Options{State: t.home.dir})
	if err != nil {
		return nil, state.FailAs(KindGrants, fmt.Errorf("%s: %w", p.File, err))
	}
	return set, nil
}

// Admit is Trust.Admit under $MSB_HOME, which a policy that takes nothing doesn't need.
func Admit(p *policies.Policy, o AdmitOptions) (*Admission, error) {
	if set, held, err := grants.Of(p, grants.Options{}); err == nil && len(set) == 0 {
		return &Admission{Policy: held, Credentials: true}, nil
	}
	home, err := OpenHome("")
	if err != nil {
		return nil, err
	}
	return home.Trust().Admit(p, o)
}
