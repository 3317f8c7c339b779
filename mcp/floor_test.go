package mcp

import (
	"slices"
	"strings"
	"testing"

	"github.com/msb-project/msb/policies"
)

// TestPoliciesKnowTheToolsets, so that msb policy check judges agent.tools as a start does.
func TestPoliciesKnowTheToolsets(t *testing.T) {
	t.Parallel()
	if got, want := policies.AgentTools(), append(Toolsets(), AllTools); !slices.Equal(got, want) {
		t.Errorf("policies know %q, the server %q", got, want)
	}
}

func TestImagesOfFlagsAreReferences(t *testing.T) {
	t.Parallel()
	p := serve(t, nil)
	for ref, want := range map[string]string{"python:3.12": "", "Python:3": `did you mean "python:3"?`, "Python:::3": "invalid image reference", "": "it is empty"} {
		err := Options{Home: p.opts.Home, Images: []string{ref}}.Check()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %q", ref, err, want)
		}
	}
}
