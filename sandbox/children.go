package sandbox

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/image"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// ErrChildren is wrapped by errors about children that can't be made: there is no budget, or it is used up.
var ErrChildren = errors.New("no child can be made")

// ChildBudget bounds the children of a sandbox, including their own children.
type ChildBudget = policies.ChildBudget

// ChildOptions say in what a child differs from its parent.
type ChildOptions struct {
	// Name is the child's; "" is the parent's with random letters behind it.
	Name string
	// Image is one of the budget's; "" is the parent's.
	Image string
	// CPUs and Memory, in bytes, are at most the parent's; 0 is the parent's.
	CPUs   int
	Memory int64
	// Policy is the child's own policy, bounded by the parent's; nil is the parent's. It takes nothing from the host.
	Policy *policies.Policy
	// Pull says whether a registry is asked for Image.
	Pull image.Pull
	// Program is as in Config.
	Program string
}

// Children are the sandboxes of a state directory that were made for others.
type Children struct {
	home *Home // with all of its sandboxes
	only *Home // that may be for one of them alone (Only)
}

// Children are h's.
func (h *Home) Children() Children { return Children{h.Only(time.Time{}), h} }

// ChildrenStatus lists the children of a sandbox, including their own children, and its budget, nil if it has none.
type ChildrenStatus struct {
	Root     string       `json:"budget_of"`
	Children []Status     `json:"children"`
	Made     int          `json:"made"`
	Budget   *ChildBudget `json:"budget"`
}

// family is a sandbox that may have children, with its children.
type family struct {
	parent *state.Stored
	root   *state.Stored // whose budget counts; the parent, if that is no child
	depth  int           // of the parent: 0 is root
	all    []Status      // the root's children, and theirs
}

// familyOf finds the family of the sandbox of that name. A child whose parent is gone has no root.
func (cs Children) familyOf(name string) (*family, error) {
	parent, err := loadStored(cs.only, name)
	if err != nil {
		return nil, err
	}
	f := &family{parent: parent, root: parent}
	for f.root.Parent != "" {
		above, err := loadStored(cs.home, f.root.Parent)
		if errors.Is(err, ErrNoSandbox) || err == nil && !above.Created.Equal(f.root.ParentCreated) {
			return nil, fmt.Errorf("%w: the parent of sandbox %s has gone", ErrChildren, f.root.Name)
		}
		if err != nil {
			return nil, err
		}
		if f.depth++; f.depth > policies.MaxChildDepth {
			return nil, fmt.Errorf("%w: %s is a child of a child, and so on, deeper than can be", ErrState, name)
		}
		f.root = above
	}
	f.all, err = cs.below(f.root.Name, f.root.Created)
	return f, err
}

// below are the children of a sandbox, and theirs. Those whose own parent has ended are still below their root: they would
// not count for its budget otherwise.
func (cs Children) below(name string, created time.Time) ([]Status, error) {
	list, err := cs.home.List()
	if err != nil {
		return nil, err
	}
	var all []Status
	type one struct {
		name string
		made time.Time
	}
	from, seen := []one{{name, created}}, map[string]bool{}
	for range policies.MaxChildDepth {
		var next []one
		for i := range list {
			is := func(o one) bool {
				return list[i].Parent == o.name && list[i].ParentCreated.Equal(o.made) || list[i].Root == o.name && list[i].RootCreated.Equal(o.made)
			}
			if list[i].Parent != "" && !seen[list[i].Name] && slices.ContainsFunc(from, is) {
				seen[list[i].Name] = true
				all, next = append(all, list[i]), append(next, one{list[i].Name, list[i].Created})
			}
		}
		from = next
	}
	return all, nil
}

// List returns the children of the sandbox of that name.
func (cs Children) List(name string) (*ChildrenStatus, error) {
	f, err := cs.familyOf(name)
	if err != nil {
		return nil, Fail(err)
	}
	made, err := readChildren(cs.home, f.root.Name)
	if err != nil {
		return nil, Fail(err)
	}
	own, err := cs.below(f.parent.Name, f.parent.Created)
	return &ChildrenStatus{Root: f.root.Name, Children: own, Made: made.Made, Budget: f.root.Children}, Fail(err)
}

// Make makes a child of the sandbox called parent, within the budget, and does not start it. It stores the new count first,
// so that a kill gives nothing back. A child is removed when its run ends.
func (cs Children) Make(ctx context.Context, parent string, o ChildOptions) (string, error) {
	name, err := cs.make(ctx, parent, o)
	return name, Fail(err)
}

func (cs Children) make(ctx context.Context, parent string, o ChildOptions) (string, error) {
	f, err := cs.familyOf(parent)
	if err != nil {
		return "", err
	}
	unlock, err := lockChildren(ctx, cs.home, f.root.Name)
	if err != nil {
		return "", err
	}
	defer unlock()
	if f, err = cs.familyOf(parent); err != nil { // as it is under the lock
		return "", err
	}
	cfg, err := f.config(&o)
	if err != nil {
		return "", err
	}
	if err := checkNew(cs.home, cfg.Name); err != nil { // what can't be made is not counted
		return "", err
	}
	made, err := readChildren(cs.home, f.root.Name)
	if err != nil {
		return "", err
	}
	if b := f.root.Children; made.Made >= b.Total {
		return "", fmt.Errorf("%w: %d were made in the life of sandbox %s, and no more may be", ErrChildren, made.Made, f.root.Name)
	}
	made.Made++
	if err := state.WriteJSON(namedPath(cs.home, f.root.Name), state.ChildrenFile, made); err != nil {
		return "", err
	}
	cfg.Home, cfg.Program = cs.home.dir, o.Program
	_, lock, err := create(ctx, cfg)
	if err != nil {
		return "", err
	}
	if err := lock.Close(); err != nil {
		return "", err
	}
	if _, err := cs.home.Children().familyOf(cfg.Name); err != nil { // its parent was removed meanwhile, with the children that it had then
		return "", errors.Join(err, removeNamed(context.WithoutCancel(ctx), cs.home, cfg.Name))
	}
	return cfg.Name, nil
}

// config is the child as its parent's budget lets it be.
func (f *family) config(o *ChildOptions) (*Config, error) {
	b, p := f.root.Children, f.parent
	if b == nil {
		return nil, fmt.Errorf("%w: sandbox %s has no budget for children", ErrChildren, f.root.Name)
	}
	if f.depth >= b.Depth {
		return nil, fmt.Errorf("%w: children are %d deep at most, and sandbox %s is at %d", ErrChildren, b.Depth, p.Name, f.depth)
	}
	cfg, err := configOf(p)
	if err != nil {
		return nil, err
	}
	if err := f.room(&cfg, o); err != nil {
		return nil, err
	}
	cfg.Name = o.Name
	if cfg.Name == "" {
		var random [3]byte
		_, _ = rand.Read(random[:]) // never fails
		cfg.Name = p.Name[:min(len(p.Name), state.MaxNameLen-7)] + "-" + hex.EncodeToString(random[:])
	}
	if o.Image != "" && !image.SameReference(o.Image, p.Image) {
		if policies.LocalImage(o.Image) || !slices.ContainsFunc(b.Images, func(ref string) bool { return image.SameReference(ref, o.Image) }) {
			return nil, fmt.Errorf("%w: children may not have image %.80q", ErrChildren, o.Image)
		}
		cfg.Image, cfg.PolicyImage = o.Image, true
	}
	cfg.Pull = o.Pull
	if o.Policy != nil {
		if o.Policy.Agent != nil {
			return nil, fmt.Errorf("%w: a child's policy has no [agent]", ErrChildren)
		}
		above := cfg.Policy
		if cfg.Floor != nil {
			if above, err = policies.Tighten(cfg.Floor, cfg.Policy); err != nil {
				return nil, err
			}
		}
		if _, err := policies.Tighten(above, o.Policy); err != nil {
			return nil, fmt.Errorf("%w: its policy: %w", ErrChildren, err)
		}
		cfg.Policy, cfg.Floor = o.Policy, above
	}
	cfg.PolicyFile = "" // which would be read again
	cfg.Label, cfg.Labels, cfg.Hostname = p.Label, nil, ""
	cfg.Ports, cfg.Volumes, cfg.Caches, cfg.Audit, cfg.Pcap = nil, nil, nil, "", ""
	cfg.Restart, cfg.AutoRemove = Restart{}, true
	cfg.Children, cfg.parent, cfg.parentCreated, cfg.root, cfg.rootCreated = b, p.Name, p.Created, f.root.Name, f.root.Created
	if cfg.Lifetime == 0 || b.Lifetime < cfg.Lifetime {
		cfg.Lifetime = b.Lifetime
	}
	return &cfg, nil
}

// room checks that the budget has room for the child, and sets its processors and memory.
func (f *family) room(cfg *Config, o *ChildOptions) error {
	b, p := f.root.Children, f.parent
	if o.CPUs < 0 || o.CPUs > p.CPUs || o.Memory < 0 || o.Memory > p.Memory {
		return fmt.Errorf("%w: %d CPUs and %d MiB are more than the %d and %d of its parent", ErrChildren, o.CPUs, o.Memory>>20, p.CPUs, p.Memory>>20)
	}
	if o.CPUs > 0 {
		cfg.CPUs = o.CPUs
	}
	if o.Memory > 0 {
		cfg.Memory = o.Memory
	}
	cpus, memory := cfg.CPUs, cfg.Memory
	for i := range f.all {
		cpus, memory = cpus+f.all[i].CPUs, memory+f.all[i].Memory
	}
	switch {
	case len(f.all) >= b.Count:
		return fmt.Errorf("%w: sandbox %s has %d, and at most %d may be at once; remove one first", ErrChildren, f.root.Name, len(f.all), b.Count)
	case cpus > b.CPUs:
		return fmt.Errorf("%w: the children of sandbox %s would have %d CPUs together, and may have at most %d", ErrChildren, f.root.Name, cpus, b.CPUs)
	case memory > b.Memory:
		return fmt.Errorf("%w: the children of sandbox %s would have %d MiB together, and may have at most %d", ErrChildren, f.root.Name, memory>>20, b.Memory>>20)
	}
	return nil
}

// Remove stops and removes a child of the sandbox called parent, with its own children. ErrNoSandbox for any other.
func (cs Children) Remove(ctx context.Context, parent, name string) error {
	return Fail(cs.remove(ctx, parent, name))
}

func (cs Children) remove(ctx context.Context, parent, name string) error {
	p, err := loadStored(cs.only, parent)
	if err != nil {
		return err
	}
	all, err := cs.below(p.Name, p.Created)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(s Status) bool { return s.Name == name })
	if i < 0 {
		return fmt.Errorf("%w: %.80s is no child of %s", ErrNoSandbox, name, parent)
	}
	return cs.removeAll(ctx, all[i:i+1])
}

// RemoveAll stops and removes all children of the sandbox of that name that was made at created. It may be gone: whoever
// removes it calls this once more, for children that were made until then.
func (cs Children) RemoveAll(ctx context.Context, name string, created time.Time) error {
	all, err := cs.below(name, created)
	return Fail(errors.Join(err, cs.removeAll(ctx, all)))
}

func (cs Children) removeAll(ctx context.Context, all []Status) error {
	var errs []error
	for i := range all {
		below, err := cs.below(all[i].Name, all[i].Created)
		errs = append(errs, err, cs.removeAll(ctx, below))
		one := cs.home.Only(all[i].Created)
		if err := one.Stop(ctx, all[i].Name); err != nil && !errors.Is(err, ErrNotRunning) && !errors.Is(err, ErrNoSandbox) {
			errs = append(errs, err)
			continue
		}
		if err := one.Remove(ctx, all[i].Name); err != nil && !errors.Is(err, ErrNoSandbox) { // its end removes it, too
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// storedChildren is the file beside a sandbox that may have children.
type storedChildren struct {
	Made int `json:"made"`
}

func readChildren(h *Home, root string) (c storedChildren, err error) {
	err = state.ReadJSON(namedPath(h, root), state.ChildrenFile, &c)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return c, err
}

const (
	childrenLockPoll = 50 * time.Millisecond
	// childrenLockWait bounds the wait for another process that makes a child, which may have to pull an image.
	childrenLockWait = time.Minute
)

// lockChildren keeps other processes from making children of a root.
func lockChildren(ctx context.Context, h *Home, root string) (unlock func(), err error) {
	lock, err := os.OpenFile(namedPath(h, root, state.ChildrenLock), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, childrenLockWait)
	defer cancel()
	for {
		err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			break
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), lock.Close())
		case <-time.After(childrenLockPoll):
		}
	}
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return func() { _ = lock.Close() }, nil
}
