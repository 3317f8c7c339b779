package supervisor

import (
	"context"
	"time"

	"github.com/msb-project/msb/agentd/agentclient"
)

const (
	// clockSlack is how far off a guest's clock may be before it is set. With a measurement that took as
	// long at most, the guest stays within half a second of the host.
	clockSlack = 250 * time.Millisecond
	// clockTries bounds the measurements of one look: a guest that was stopped in between answers late,
	// and a guest that always answers late, or lies about its clock, is left until the next look.
	clockTries = 4
)

// clockedGuest is what a guestClock needs of the agent.
type clockedGuest interface {
	Stats(ctx context.Context) (agentclient.Stats, error)
	SetClock(ctx context.Context, t time.Time) (time.Duration, error)
}

var _ clockedGuest = (*agentclient.Client)(nil)

// guestClock keeps a guest's wall clock at the host's: the guest's falls behind while the host or the
// VMM is suspended, and drifts under emulation.
type guestClock struct {
	guest clockedGuest
	wall  func() time.Time
	mono  func() time.Duration // since any moment; not moved when the host's clock is set

	ahead time.Duration // of wall over mono at the last call of jumped
}

func newGuestClock(guest clockedGuest) *guestClock {
	start := time.Now()
	c := &guestClock{
		guest: guest,
		wall:  func() time.Time { return time.Now().Round(0) }, // without the monotonic reading
		mono:  func() time.Duration { return time.Since(start) },
	}
	c.jumped()
	return c
}

// jumped tells whether the host's wall clock moved apart from its monotonic one since the last call:
// it was set, or the host was suspended.
func (c *guestClock) jumped() bool {
	ahead := time.Duration(c.wall().UnixNano()) - c.mono()
	moved := ahead - c.ahead
	c.ahead = ahead
	return moved.Abs() > clockSlack
}

// exact tells whether a clock that may be behind by that much needs no further look.
func exact(behind time.Duration) bool { return behind >= 0 && behind <= clockSlack }

// look compares the guest's clock to the host's and sets it where it is off. It tells whether the agent
// answered at all.
func (c *guestClock) look(ctx context.Context) (answered bool) {
	for range clockTries {
		asked := c.mono()
		stats, err := c.guest.Stats(ctx)
		if err != nil {
			return answered
		}
		answered = true
		took, wall := c.mono()-asked, c.wall()
		// The guest read its clock at some moment between the question and the answer.
		behind, ahead := wall.Add(-took).Sub(stats.Clock), stats.Clock.Sub(wall)
		if behind <= clockSlack && ahead <= clockSlack {
			if took <= clockSlack {
				return true
			}
			continue
		}
		if _, err := c.guest.SetClock(ctx, c.wall()); err != nil {
			return true
		}
	}
	return true
}
