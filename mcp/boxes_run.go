package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/msb-project/msb/sandbox"
)

// start starts an existing sandbox. It counts the running ones again: there may be more than the operator allows now.
func (b *boxes) start(ctx context.Context, st *sandbox.Status) (machine, error) {
	if st.Parent == "" {
		if err := b.mayStart(st.Name); err != nil {
			return nil, err
		}
		defer b.started(st.Name)
	}
	p, err := b.only(st).Policy(st.Name)
	if err == nil {
		err = mayRead(p)
	}
	if err != nil {
		return nil, err
	}
	m, err := b.runner.start(ctx, st)
	if err != nil {
		return nil, unusable(err)
	}
	// Another server on this state directory may have started one at the same time.
	if n, err := b.othersRun(st.Name); st.Parent == "" && (err != nil || n >= b.opts.Sandboxes) {
		return nil, errors.Join(err, b.tooMany(), m.Close(), b.runner.stop(context.WithoutCancel(ctx), st))
	}
	return m, nil
}

// mayStart counts a sandbox as running until started is called, or says why it can't run.
func (b *boxes) mayStart(name string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, err := b.othersRun(name)
	if err != nil {
		return err
	}
	for other := range b.starting {
		if other != name {
			n++
		}
	}
	if n >= b.opts.Sandboxes {
		return b.tooMany()
	}
	if b.starting == nil {
		b.starting = map[string]int{}
	}
	b.starting[name]++
	return nil
}

func (b *boxes) started(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.starting[name]--; b.starting[name] == 0 {
		delete(b.starting, name)
	}
}

// othersRun counts the other sandboxes that run.
func (b *boxes) othersRun(name string) (n int, err error) {
	mine, err := b.counted()
	for i := range mine {
		if mine[i].Running && mine[i].Name != name {
			n++
		}
	}
	return n, err
}

// startingPoll is how often a start by another process is checked.
const startingPoll = 50 * time.Millisecond

// use opens a session with a sandbox of this server. It starts a stopped one, and makes the default one.
func (b *boxes) use(ctx context.Context, name string) (machine, *sandbox.Status, error) {
	m, st, err := b.open(ctx, name)
	if err != nil {
		return nil, nil, startFault{err}
	}
	return m, st, nil
}

func (b *boxes) open(ctx context.Context, name string) (machine, *sandbox.Status, error) {
	st, err := b.own(name, false)
	if byDefault := b.defaultName(); errors.Is(err, sandbox.ErrNoSandbox) && (name == "" || name == defaultName || name == byDefault) {
		if err := b.createDefault(ctx, byDefault); err != nil {
			return nil, nil, err
		}
		st, err = b.own("", false)
	}
	if err != nil {
		return nil, nil, err
	}
	for {
		m, err := b.runner.connect(ctx, st)
		if errors.Is(err, sandbox.ErrNotRunning) {
			m, err = b.start(ctx, st)
		}
		if !errors.Is(err, sandbox.ErrRunning) {
			return m, st, err
		}
		select { // another call or server starts it
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		case <-time.After(startingPoll):
		}
	}
}

// useWithin is use for a program with a time limit: a running sandbox has to answer within it. A start may take longer.
func (b *boxes) useWithin(ctx context.Context, name string, limit time.Duration) (machine, *sandbox.Status, error) {
	st, err := b.own(name, false)
	if err != nil || !st.Running || st.Info == nil {
		return b.use(ctx, name)
	}
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	m, used, err := b.use(within, name)
	if err != nil && within.Err() != nil && ctx.Err() == nil {
		err = say("sandbox %s runs and did not answer within %s, the timeout; call again with a longer one, or stop it with sandbox_stop", st.Name, limit)
	}
	return m, used, err
}

// with calls do with a session of a sandbox, which it starts or makes if need be.
func (b *boxes) with(ctx context.Context, name string, do func(machine) (string, error)) (string, error) {
	m, _, err := b.use(ctx, name)
	if err != nil {
		return "", err
	}
	defer func() { _ = m.Close() }() // the session's
	return do(m)
}

// onPath decodes the arguments of a tool about files, whose paths are at paths and whose sandbox is at name, and calls do
// with the files of that sandbox.
func (b *boxes) onPath(ctx context.Context, raw json.RawMessage, a any, name *string, do func(files) (string, error), paths ...*string) (string, error) {
	if err := decode(raw, a); err != nil {
		return "", err
	}
	for _, p := range paths {
		if err := guestPath(*p); err != nil {
			return "", err
		}
	}
	return b.with(ctx, *name, func(m machine) (string, error) { return do(m.Files()) })
}
