//go:build linux

package vmtest

import (
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	// clockSpan is how long a guest's clock is compared to the host's.
	clockSpan = time.Second
	// clockTolerance is the part by which they may differ in rate. A clock of
	// ticks under emulation loses a fifth.
	clockTolerance = 0.005
)

// ClockKeepsTime boots a guest and looks at its clock.
func (s *Suite) ClockKeepsTime(t *testing.T) {
	t.Helper()
	Boot(t, s.Backend, s.spec(t)).ClockKeepsTime(t)
}

// ClockKeepsTime looks at what the guest's kernel reads the time from, and
// compares its rate to the host's.
func (g *Guest) ClockKeepsTime(t testing.TB) {
	t.Helper()
	checkClockSource(t, g)
	first := g.clock(t)
	<-time.After(clockSpan)
	last := g.clock(t)
	passed := float64(last.guest - first.guest)
	least := float64(last.asked.Sub(first.answered)) * (1 - clockTolerance)
	most := float64(last.answered.Sub(first.asked)) * (1 + clockTolerance)
	if passed < least || passed > most {
		t.Errorf("%s passed in the guest while %s to %s passed on the host",
			time.Duration(passed), time.Duration(least), time.Duration(most))
	}
}

func checkClockSource(t testing.TB, g *Guest) {
	t.Helper()
	const source = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
	// tsc-early is the TSC in the first moments.
	if got := g.Ask(t, "read "+source); got != "kvm-clock" && !strings.HasPrefix(got, "tsc") {
		t.Errorf("the guest's clock source is %q, want the TSC or kvm-clock", got)
	}
}

// clockReading is a guest's time and the host's around it.
type clockReading struct {
	asked, answered time.Time
	guest           time.Duration
}

func (g *Guest) clock(t testing.TB) clockReading {
	t.Helper()
	asked := time.Now()
	text := g.Ask(t, "now")
	r := clockReading{asked: asked, answered: time.Now()}
	ns, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatalf("the guest's time is %q", text)
	}
	r.guest = time.Duration(ns)
	return r
}
