package dnsguard

import (
	"time"

	"github.com/msb-project/msb/policies"
)

// ttlBounds returns the clamp of pins, with the defaults for what a policy from
// code leaves out.
func ttlBounds(d policies.DNS) (lowest, highest time.Duration) {
	lowest, highest = d.MinTTL, d.MaxTTL
	if lowest <= 0 {
		lowest = policies.DefaultMinTTL
	}
	if highest <= 0 {
		highest = policies.DefaultMaxTTL
	}
	return lowest, max(lowest, highest)
}
