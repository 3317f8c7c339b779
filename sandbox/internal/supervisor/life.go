package supervisor

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/sandbox/internal/state"
)

const (
	// stopNotice is how long before a sandbox ends by itself its jobs are notified. In a life that is shorter than twice
	// that it is half of it.
	stopNotice = 30 * time.Second
	// termWait is how long jobs may take to end after SIGTERM before the machine ends: docker stop's.
	termWait = 10 * time.Second
	// noticeWait bounds how long the guest may take to write the notice.
	noticeWait = 5 * time.Second
)

// life says when a sandbox ends by itself: when it has run for its Lifetime, or when nobody used it for its IdleStop.
type life struct {
	calls  atomic.Int64 // of clients, that are under way
	called atomic.Bool  // since the last look

	mu       sync.Mutex
	lifetime time.Duration
	idleStop time.Duration
	ran      time.Duration // of lifetime, until mark
	mark     time.Time
	unused   time.Time            // since when nobody uses it; the zero value while it is used
	end      *lifeEnd             // the one that is announced
	told     map[string]time.Time // when the ends that are near come, by word, of those that were announced
	noticed  bool                 // the guest has a notice
	paused   bool                 // while the guest is
}

// lifeEnd is an end that is near enough to be announced.
type lifeEnd struct {
	at   time.Time
	word string // for the guest
	why  error
}

// begin starts the clocks of a run. ran is how much of the lifetime earlier runs used; a lifetime that was over
// begins again, unless the guest had itself started again by a crash.
func (l *life) begin(now time.Time, spec *state.Spec, ran time.Duration, crashed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lifetime, l.idleStop, l.ran, l.mark = spec.Lifetime, spec.IdleStop, ran, now
	if ran >= spec.Lifetime && !crashed {
		l.ran = 0
	}
}

// over is why a guest that has crashed gets no other machine; nil if its lifetime goes on. Each machine lives through a
// notice, so that a guest which crashes during one would live for ever.
func (l *life) over(now time.Time) error {
	ran := l.ranBy(now)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lifetime == 0 || ran < l.lifetime {
		return nil
	}
	return lifetimeOver(l.lifetime)
}

func lifetimeOver(d time.Duration) error {
	return fmt.Errorf("%w: it ran for %s", state.ErrLifetime, d)
}

// change takes new limits; keep starts the clocks again.
func (l *life) change(now time.Time, spec *state.Spec, keep bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lifetime, l.idleStop, l.end, l.told = spec.Lifetime, spec.IdleStop, nil, nil
	if keep {
		l.ran, l.mark, l.unused = 0, now, time.Time{}
	}
}

// setPaused stops the clocks, or lets them go on. An end that was announced is announced again then.
func (l *life) setPaused(now time.Time, paused bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if paused {
		l.ran += now.Sub(l.mark)
	}
	l.mark, l.unused, l.end, l.told, l.paused = now, time.Time{}, nil, nil, paused
}

// ranBy is how much of its lifetime the sandbox has had.
func (l *life) ranBy(now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.paused {
		return l.ran
	}
	return l.ran + now.Sub(l.mark)
}

// call notes a use of the sandbox until done is called.
func (l *life) call() (done func()) {
	l.calls.Add(1)
	l.called.Store(true)
	return sync.OnceFunc(func() {
		l.called.Store(true)
		l.calls.Add(-1)
	})
}

// look returns the end that is near, if one is, and whether that is news: an end that was not there at the last look, or
// none where there was one. While the clocks stand still there is none. busy tells that something other than clients' calls is a use.
func (l *life) look(now time.Time, busy bool) (end *lifeEnd, news bool) {
	used := l.called.Swap(false) || l.calls.Load() > 0 || busy
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.paused {
		return nil, false
	}
	switch {
	case used:
		l.unused = time.Time{}
	case l.unused.IsZero():
		l.unused = now
	}
	next := l.next(now)
	if next != nil && l.end != nil && next.word == l.end.word {
		return l.end, false
	}
	news = next != nil || l.noticed
	l.end, l.noticed = next, next != nil
	if next != nil {
		if l.told == nil {
			l.told = map[string]time.Time{}
		}
		l.told[next.word] = next.at
	}
	return next, news
}

// next is the first of the ends that are near.
func (l *life) next(now time.Time) *lifeEnd {
	var first *lifeEnd
	consider := func(at time.Time, limit time.Duration, word string, why error) {
		notice := min(stopNotice, limit/2)
		if limit <= 0 || at.Sub(now) > notice {
			delete(l.told, word)
			return
		}
		told, known := l.told[word]
		switch announced := now.Add(notice); {
		case known: // the time that was announced stands, also when another end was nearer meanwhile
			at = told
		case at.Before(announced): // no end comes unannounced, such as that of a limit just set
			at = announced
		}
		if first == nil || at.Before(first.at) {
			first = &lifeEnd{at, word, why}
		}
	}
	consider(l.mark.Add(l.lifetime-l.ran), l.lifetime, "max-duration", lifetimeOver(l.lifetime))
	since := l.unused
	if since.IsZero() {
		since = now
	}
	consider(since.Add(l.idleStop), l.idleStop, "idle-timeout", fmt.Errorf("%w for %s", state.ErrIdle, l.idleStop))
	return first
}

// lookAtLife announces an end that is near, and ends the sandbox in order when it has come. It reports whether it did.
func (s *supervisor) lookAtLife(now time.Time) (ended bool) {
	busy := s.jobs.Running() > 0 || s.gateway != nil && s.gateway.Used()
	end, news := s.life.look(now, busy)
	if news {
		s.tellEnd(now, end)
	}
	if end == nil || now.Before(end.at) {
		return false
	}
	ctx, cancel := context.WithTimeout(s.ctx, termWait)
	defer cancel()
	s.jobs.Terminate(ctx)
	s.cancel(end.why)
	return true
}

// tellEnd announces an end to the guest and in the audit log; nil takes the notice back. A notice that can't be written
// keeps nothing from ending.
func (s *supervisor) tellEnd(now time.Time, end *lifeEnd) {
	ctx, cancel := context.WithTimeout(s.ctx, noticeWait)
	defer cancel()
	var err error
	if end == nil {
		err = s.takeBackNotice(ctx)
	} else {
		left, remedy := end.at.Sub(now).Round(time.Second), ""
		if s.plan.Name != "" {
			remedy = fmt.Sprintf("; `msb keep %s` starts its time again", s.plan.Name)
		}
		s.event(audit.SandboxStopping, fmt.Sprintf("in %s: %s%s", left, end.word, remedy))
		text := end.at.UTC().Format(time.RFC3339) + " " + end.word + "\n"
		_, err = s.agent.Files().WriteFile(ctx, state.StopNotice, strings.NewReader(text), agentclient.WriteOptions{})
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %s\n", state.StopNotice, err) // the supervisor's log
	}
}

// takeBackNotice removes the notice from the guest, whose disk would keep it for the next start.
func (s *supervisor) takeBackNotice(ctx context.Context) error {
	return state.UnlessGone(s.agent.Files().Remove(ctx, state.StopNotice, false))
}

// announced reports whether the guest has a notice.
func (l *life) announced() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.noticed
}
