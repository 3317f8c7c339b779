package dnsguard

import "time"

// clock tells the time since some start, unmoved by changes of the wall clock:
// a laptop that sets its clock must not expire or revive a pin.
type clock func() time.Duration

func newClock() clock {
	start := time.Now()
	return func() time.Duration { return time.Since(start) }
}
