package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/msb-project/msb/policies"
)

// Policy is the policy that the sandbox of that name starts with: its policy file as it is now, under its floor, with the
// approved requests.
func (h *Home) Policy(name string) (*policies.Policy, error) {
	st, err := loadStored(h, name)
	if err != nil {
		return nil, Fail(err)
	}
	cfg, err := configOf(st)
	p := cfg.Policy
	if err == nil && cfg.Floor != nil && (st.PolicyFile != "" || st.Policy != st.Floor || len(st.Between) > 0) { // else the floor would only judge twice
		p, err = policies.Tighten(cfg.Floor, p)
	}
	if err != nil {
		return nil, Fail(err)
	}
	st.Settle(time.Now())
	for _, r := range st.Granted() {
		if with, err := policies.WithRule(p, r); err == nil { // as a gateway does
			p = with
		}
	}
	return p, nil
}

// LoadPolicy reads a policy file and tells one that can't be read (ErrPolicyMissing) from one that is wrong.
func LoadPolicy(path string) (*policies.Policy, error) {
	if slices.Contains(policies.Presets(), path) {
		return loadPolicy(path, fmt.Sprintf("%s is a preset: write a file with version = 1 and include = [%q]", path, path))
	}
	return loadPolicy(path, "write one, or start from a preset: `msb policy presets`")
}

func loadPolicy(path, remedy string) (*policies.Policy, error) {
	p, err := policies.Load(path)
	var wrong policies.ErrorList
	if err != nil && !errors.As(err, &wrong) {
		if !errors.Is(err, fs.ErrNotExist) {
			remedy = "make it a file that you may read"
		}
		return nil, Fail(fmt.Errorf("%w: %w; %s", ErrPolicyMissing, err, remedy))
	}
	return p, Fail(err)
}
