package grants

import (
	"fmt"
	"strings"

	"github.com/msb-project/msb/policies"
)

// Reload admits a later version of a policy file for a sandbox that runs: it may take what the one before took, which is
// approved, whatever was approved meanwhile. It returns the policy with its sources held, as Of does.
func Reload(p *policies.Policy, approved Set, o Options) (*policies.Policy, error) {
	set, held, err := Of(p, o)
	if err != nil {
		return nil, err
	}
	if missing := set.Beyond(approved); len(missing) > 0 {
		return nil, fmt.Errorf("it takes more from this machine than was approved when the sandbox started: %s; look at it, then stop the sandbox, run `msb policy trust %s`, and start it again",
			strings.Join(missing.Lines(), "; "), policies.QuoteArgs([]string{p.File}))
	}
	return held, nil
}
