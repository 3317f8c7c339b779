package mcp

import (
	"context"
	"errors"
	"fmt"

	"github.com/msb-project/msb/sandbox"
)

// config is the sandbox that a client asks for, within the floor, with the volumes that it names.
func (b *boxes) config(a *machineArgs) (sandbox.Config, error) {
	cfg, err := b.opts.config(a)
	for _, text := range a.Volumes {
		v, parseErr := b.parseMount(text)
		cfg.Volumes, err = append(cfg.Volumes, v), errors.Join(err, parseErr)
	}
	cfg.OperatorVolumes = true
	return cfg, err
}

// create makes a named sandbox, and does not start it.
func (b *boxes) create(ctx context.Context, name string, a *machineArgs) error {
	cfg, err := b.config(a)
	if err != nil {
		return err
	}
	cfg.Children = b.opts.Children
	cfg.Name, cfg.Label, cfg.Disk, cfg.IdleStop = name, b.label, b.opts.Disk, b.opts.IdleStop
	if a.also != nil {
		if err := a.also(&cfg); err != nil {
			return err
		}
	}
	free, err := b.reserve()
	if err != nil {
		return err
	}
	defer free()
	if err := sandbox.Create(ctx, cfg); errors.Is(err, sandbox.ErrExists) {
		return b.taken(name)
	} else if err != nil {
		return b.opts.imageFault(cfg.Image, err)
	}
	return b.recount(ctx, name)
}

// recount removes a sandbox that this server has just made if another server on this state directory made one at the same
// time, and there are too many now.
func (b *boxes) recount(ctx context.Context, name string) error {
	if mine, err := b.counted(); err != nil || len(mine) > b.opts.Sandboxes {
		return errors.Join(err, b.tooMany(), b.removeOwn(context.WithoutCancel(ctx), name))
	}
	return nil
}

// taken is ErrExists with what can be done about it.
func (b *boxes) taken(name string) error {
	if st, err := b.opts.Home.Inspect(name); err == nil && st.Label == b.label {
		return fmt.Errorf("%w: %s; use it as it is, choose another name, or delete it with its files (sandbox_stop, remove: true)", sandbox.ErrExists, name)
	}
	if b.has(name) {
		return fmt.Errorf("%w: %s; choose another name, or delete it with its files (sandbox_stop, remove: true)", sandbox.ErrExists, name)
	}
	return fmt.Errorf("%w: %s, and is not yours; choose another name", sandbox.ErrExists, name)
}

// remove removes a stopped sandbox and its children. Its programs can make no more of these, but another call may, until it
// is gone.
func (b *boxes) remove(ctx context.Context, st *sandbox.Status) error {
	children := func() error { return b.opts.Home.Children().RemoveAll(ctx, st.Name, st.Created) }
	if err := children(); err != nil {
		return err
	}
	if all, err := b.only(st).Requests().List(st.Name); err == nil { // a damaged one can be removed
		b.denials.noteAll(all)
	}
	err := b.only(st).Remove(ctx, st.Name)
	if st.Parent != "" && errors.Is(err, sandbox.ErrNoSandbox) { // the end of a child removes it, too
		err = nil
	}
	return errors.Join(err, children())
}

// removeOwn removes a sandbox that this server has just made.
func (b *boxes) removeOwn(ctx context.Context, name string) error {
	st, err := b.own(name, true)
	if err != nil {
		return err
	}
	return b.remove(ctx, st)
}

// discard stops and removes a sandbox that this server has just made.
func (b *boxes) discard(ctx context.Context, name string) error {
	st, err := b.own(name, true)
	if err != nil {
		return err
	}
	if err := b.runner.stop(ctx, st); err != nil && !errors.Is(err, sandbox.ErrNotRunning) {
		return err
	}
	return b.remove(ctx, st)
}

// errTooMany says that the bound on sandboxes is reached.
var errTooMany = errors.New("too many sandboxes")

func (b *boxes) tooMany() error {
	return fmt.Errorf("%w: at most %d at once, those of sandbox_run included; remove one with sandbox_stop (remove: true)", errTooMany, b.opts.Sandboxes)
}

// reserve takes a place for a sandbox that is being made or run without a name.
func (b *boxes) reserve() (free func(), err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	mine, err := b.counted()
	if err != nil {
		return nil, err
	}
	if len(mine)+b.reserved >= b.opts.Sandboxes {
		return nil, b.tooMany()
	}
	b.reserved++
	return func() { b.mu.Lock(); b.reserved--; b.mu.Unlock() }, nil
}
