package sandbox

import (
	"slices"
	"testing"
)

// TestI8_ContainersGetPlaceholders: none has a value under a secret's name that somebody put into its environment.
func TestI8_ContainersGetPlaceholders(t *testing.T) {
	t.Parallel()
	env := []string{"PATH=/bin", "TOKEN=the value itself", "TOKENS=another", "TOKEN=twice"}
	got := withPlaceholders(env, map[string]string{"TOKEN": "msb_1", "B": "msb_2"})
	if want := []string{"PATH=/bin", "TOKENS=another", "B=msb_2", "TOKEN=msb_1"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if !slices.Equal(withPlaceholders(env, nil), env) || env[1] != "TOKEN=the value itself" {
		t.Error("an environment without secrets, or the caller's own, was changed")
	}
}
