package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/msb-project/msb/agentd/agentclient"
)

const (
	// livenessEvery is how often the guest is looked at.
	livenessEvery = time.Second
	// livenessAsk is after how many looks the agent is asked for a sign of life and its clock, and
	// livenessWait how long it may take: a guest that starves its own PID 1 under emulation has been seen to need
	// seconds.
	livenessAsk  = 10
	livenessWait = 60 * time.Second
	// saveRanLooks is after how many looks the running time is written down: a kill of the supervisor loses no more.
	saveRanLooks = 60
)

// errHalted is a guest whose machine stands still: without ACPI, `poweroff` and `halt` stop the kernel
// and leave the VMM running, for ever.
var errHalted = errors.New("the guest halted its machine")

// watchGuest keeps the guest's clock, and ends the sandbox when the guest can't answer any more, which
// nothing else would notice: the VMM lives and the agent's stream stays open.
func (s *supervisor) watchGuest() {
	looks, stop := s.looks()
	defer stop()
	clock := newGuestClock(s.agent)
	for n := 1; ; n++ {
		select {
		case <-s.ctx.Done():
			return
		case <-s.machine.Done():
			return
		case <-looks:
		}
		if s.lookAtLife(s.now()) {
			return
		}
		if n%saveRanLooks == 0 && s.plan.Name != "" {
			if err := s.named.saveRan(); err != nil {
				fmt.Fprintln(os.Stderr, err) // the supervisor's log; the next time may be better
			}
		}
		if s.named.removed() {
			s.cancel(errRemoved)
			return
		}
		if halted(s.machine.ConsoleTail(512)) {
			s.cancel(fmt.Errorf("%w: %w", agentclient.ErrAgentDead, errHalted))
			return
		}
		if s.pause.on.Load() || s.memory.held.Load() {
			continue
		}
		if (s.pause.resumed.Swap(false) || clock.jumped() || n%livenessAsk == 0) && !s.answers(clock) && !s.pause.on.Load() && !s.memory.held.Load() {
			s.cancel(fmt.Errorf("%w: it gave no sign of life for %s", agentclient.ErrAgentDead, livenessWait))
			return
		}
	}
}

// everyLook are the looks of supervisor.looks.
func everyLook() (<-chan time.Time, func()) {
	tick := time.NewTicker(livenessEvery)
	return tick.C, tick.Stop
}

// halted looks for the kernel's last message (kernel/reboot.c). A guest's root can print them too,
// and ends its own sandbox by it.
func halted(console string) bool {
	return strings.Contains(console, "reboot: System halted") || strings.Contains(console, "System halted instead")
}

// answers asks the agent for a sign of life, and keeps its clock.
func (s *supervisor) answers(clock *guestClock) bool {
	ctx, cancel := s.patience(s.ctx)
	defer cancel()
	return s.alive(ctx, clock)
}

// livenessPatience is supervisor.patience.
func livenessPatience(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, livenessWait)
}

// alive is answers within ctx.
func (s *supervisor) alive(ctx context.Context, clock *guestClock) bool {
	// Any other fault ends the session, which is reported elsewhere.
	return clock.look(ctx) || ctx.Err() == nil || s.ctx.Err() != nil
}
