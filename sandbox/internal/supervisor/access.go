package supervisor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// accessEvery is how often the lifetimes of requests and grants are looked at.
const accessEvery = time.Second

// accessRetry is the pause before an end that could not be written down is
// tried again.
const accessRetry = time.Minute

// access follows what was granted: when it is over, and which grants for once were used.
type access struct {
	s       *supervisor
	watches atomic.Bool // grants for once are in force, or flows that they let through are open

	mu   sync.Mutex
	next time.Time           // the first end, the zero time for none
	once map[string]*onceUse // by the names of their rules
	used map[uint64][]string // the names by the flows that they let through
	over []string            // ids of grants for once whose first flow has ended
	wake chan struct{}

	unwritten []string // of over, once it could not be written down
}

// onceUse is a grant for once that is in force.
type onceUse struct {
	id         string
	used, over bool
}

// errUsed refuses what comes behind the first flow of a grant for once.
var errUsed = errors.New("it was allowed once, and the connection that used it has ended")

// begin replaces what is in force.
func (a *access) begin(st *state.Stored) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.wake == nil {
		a.wake, a.used = make(chan struct{}, 1), map[uint64][]string{}
	}
	before := a.once
	a.next, a.once = st.NextEnd(), map[string]*onceUse{}
	for i := range st.Requests {
		if r := &st.Requests[i]; r.State == state.RequestApproved && r.Lifetime == state.ForOnce {
			if a.once[r.RuleName()] = before[r.RuleName()]; before[r.RuleName()] == nil {
				a.once[r.RuleName()] = &onceUse{id: r.ID}
			}
		}
	}
	a.watches.Store(len(a.once)+len(a.used) > 0)
}

// use implements gateway.Config.Use. A grant for once is used up before anything of its first flow leaves.
func (a *access) use(flow uint64, rule string) error {
	if !a.watches.Load() {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	g := a.once[rule]
	switch {
	case g == nil:
		return nil
	case g.over:
		return errUsed
	case !g.used:
		if err := os.Remove(state.OnceFile(a.s.plan.Dir, g.id)); errors.Is(err, fs.ErrNotExist) {
			return errUsed
		} else if err != nil {
			return err
		}
		g.used = true
	}
	if !slices.Contains(a.used[flow], rule) {
		a.used[flow] = append(a.used[flow], rule)
	}
	return nil
}

// saw notes when a flow ends that a grant for once has let through. It never blocks.
func (a *access) saw(e *audit.Event) {
	if e.Kind != audit.FlowClose || !a.watches.Load() {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, rule := range a.used[e.Flow] {
		if g := a.once[rule]; g != nil && !g.over {
			g.over = true // its other flows end with it
			a.over = append(a.over, g.id)
			select {
			case a.wake <- struct{}{}:
			default:
			}
		}
	}
	delete(a.used, e.Flow)
}

// take returns the grants for once that are over, and forgets them.
func (a *access) take() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	over := slices.Concat(a.over, a.unwritten)
	a.over, a.unwritten = nil, nil
	return over
}

// again makes settle run once more at the time at. used are the grants for once that are over.
func (a *access) again(used []string, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.unwritten = append(a.unwritten, used...)
	if a.next.IsZero() || at.Before(a.next) {
		a.next = at
	}
}

// due reports whether something is over by now.
func (a *access) due(now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.over) > 0 || !a.next.IsZero() && !now.Before(a.next)
}

// watch ends grants and requests whose time is over, until the sandbox ends.
func (a *access) watch() {
	tick := time.NewTicker(accessEvery)
	defer tick.Stop()
	for {
		select {
		case <-a.s.ctx.Done():
			return
		case <-a.wake:
		case <-tick.C:
		}
		if !a.due(time.Now()) {
			continue
		}
		if a.change(nil) != nil {
			return // the sandbox ends
		}
	}
}

// errUnwritten means that the end of a grant is in force but could not be
// written down.
var errUnwritten = errors.New("the end of a grant could not be written down")

var errNoNetwork = fmt.Errorf("%w: the sandbox has no network", state.ErrRequest)

// ask adds a request. It opens nothing.
func (a *access) ask(r *state.Request) error {
	if a.s.gateway == nil {
		return errNoNetwork
	}
	return a.change(func(st *state.Stored) (*audit.Event, error) {
		if err := st.Ask(r, time.Now()); err != nil {
			return nil, err
		}
		e := st.Requests[len(st.Requests)-1].Event(audit.AccessRequest)
		return &e, nil
	})
}

// answer puts what a person approved in force, or takes it back.
func (a *access) answer(answer *state.RequestAnswer) error {
	if a.s.gateway == nil {
		return errNoNetwork
	}
	return a.change(func(st *state.Stored) (*audit.Event, error) {
		r, err := st.Answer(answer, time.Now())
		if err == nil {
			err = r.MarkUnused(a.s.plan.Dir)
		}
		if err != nil {
			return nil, err
		}
		e := r.Event(audit.AccessAnswer)
		return &e, nil
	})
}

// change ends the requests whose time is over, then lets do change them, and puts what is granted then in force and
// down in the state. What can't be in force is an error, and changes nothing.
func (a *access) change(do func(*state.Stored) (*audit.Event, error)) error {
	a.s.named.storedMu.Lock()
	defer a.s.named.storedMu.Unlock()
	due := a.due(time.Now())
	switch err := a.settle(a.take(), a.s.gateway.Grant); {
	case errors.Is(err, errUnwritten) && do == nil:
		fmt.Fprintln(os.Stderr, err) // the supervisor's log
		return nil
	case err != nil && due && !errors.Is(err, errUnwritten):
		a.s.cancel(fmt.Errorf("a grant could not be taken back when its time was over: %w", err))
		return err
	case err != nil || do == nil:
		return err
	}
	st, err := state.ReadStored(a.s.plan.Dir, a.s.plan.Name)
	if err != nil {
		return err
	}
	before := *st
	before.Requests = slices.Clone(st.Requests)
	event, err := do(st)
	if err != nil {
		return err
	}
	opens := state.Opens(event)
	if opens { // without its line it doesn't stand
		if err := a.s.record(*event); err != nil {
			return err
		}
	}
	a.begin(st) // a use of what is in force must not be missed
	err = a.s.gateway.Grant(st.Granted())
	if err == nil {
		err = state.WriteJSON(a.s.plan.Dir, state.StoredFile, st)
	}
	if err != nil {
		err = errors.Join(err, a.s.gateway.Grant(before.Granted()))
		a.begin(&before)
		if opens {
			a.s.emit(state.Unopened(event))
		}
		return err
	}
	st.Unmark(a.s.plan.Dir)
	if !opens {
		a.s.emit(*event)
	}
	return nil
}

// settle ends the requests whose time is over, and the grants for once that are in used. put puts what is left in force. One
// that can't be written down is over all the same, and written down later.
func (a *access) settle(used []string, put func([]policies.Rule) error) error {
	st, err := state.ReadStored(a.s.plan.Dir, a.s.plan.Name)
	if err != nil {
		return err
	}
	ended := st.Settle(time.Now(), used...)
	if len(ended) == 0 {
		return nil
	}
	if err := put(st.Granted()); err != nil {
		return err
	}
	a.begin(st)
	if err := state.WriteJSON(a.s.plan.Dir, state.StoredFile, st); err != nil { // such as a full disk
		a.again(used, time.Now().Add(accessRetry))
		return fmt.Errorf("%w: %w", errUnwritten, err)
	}
	st.Unmark(a.s.plan.Dir)
	for i := range ended {
		a.s.emit(ended[i].Event(audit.AccessEnd))
	}
	return nil
}

// settleOffline is settle without a gateway: before a run, and after it, when no connection that used a grant is open
// any more.
func (a *access) settleOffline() error {
	if a.s.plan.Name == "" || a.s.plan.NoNet || a.s.named.removed() {
		return nil
	}
	a.s.named.storedMu.Lock()
	defer a.s.named.storedMu.Unlock()
	st, err := state.ReadStored(a.s.plan.Dir, a.s.plan.Name)
	if err != nil {
		return err
	}
	return a.settle(st.UsedOnce(a.s.plan.Dir), func([]policies.Rule) error { return nil })
}
