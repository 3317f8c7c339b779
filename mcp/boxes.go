package mcp

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/msb-project/msb/sandbox"
)

// boxes are the sandboxes of one server.
type boxes struct {
	opts          Options
	family, label string
	runner        runner

	denials denials       // what persons refused
	making  chan struct{} // held by the call that makes the default sandbox

	mu       sync.Mutex
	reserved int            // places of sandboxes that are not in the state directory (yet)
	starting map[string]int // starts under way, by the sandboxes' names
	taking   int            // snapshots that are being taken
}

// mine are the sandboxes that were made under any version of the floor's file.
func (b *boxes) mine() ([]sandbox.Status, error) {
	all, err := b.opts.Home.List()
	if err != nil {
		return nil, err
	}
	var mine []sandbox.Status
	for i := range all {
		if strings.HasPrefix(all[i].Label, b.family) {
			mine = append(mine, all[i])
		}
	}
	return mine, nil
}

// counted are those of mine that count for the bound on sandboxes: children count for the budget of their root. Where that
// is gone, nothing else would count them.
func (b *boxes) counted() ([]sandbox.Status, error) {
	mine, err := b.mine()
	made := make(map[string]time.Time, len(mine))
	for i := range mine {
		made[mine[i].Name] = mine[i].Created
	}
	return slices.DeleteFunc(mine, func(st sandbox.Status) bool {
		root, created := st.Root, st.RootCreated
		if root == "" { // of an older msb
			root, created = st.Parent, st.ParentCreated
		}
		at, there := made[root]
		return st.Parent != "" && there && at.Equal(created)
	}), err
}

// own is the sandbox of that name, if this server may use it; "" and "default" mean the default one. remove says that the
// caller only stops or removes it, which is allowed for sandboxes of older versions of the floor too.
func (b *boxes) own(name string, remove bool) (*sandbox.Status, error) {
	var st *sandbox.Status
	var err error
	if name == "" || name == defaultName {
		older := name != "" && remove && b.has(name)
		if !older {
			name, st = b.byDefault()
		}
	}
	if err := sandbox.CheckName(name); err != nil {
		return nil, err
	}
	if st == nil {
		st, err = b.opts.Home.Inspect(name)
	}
	if errors.Is(err, sandbox.ErrNoSandbox) || err == nil && !strings.HasPrefix(st.Label, b.family) {
		return nil, b.noSuch(name)
	}
	if err != nil {
		return nil, err
	}
	switch {
	case remove:
	case st.Label != b.label:
		return nil, say("sandbox %s was %s; use another name, or delete it with its files (sandbox_stop, remove: true); %s", name, madeBefore, getBack)
	case longer(st.IdleStop, b.opts.IdleStop) || longer(st.Lifetime, b.opts.Lifetime):
		return nil, say("sandbox %s may run for longer than the operator allows now; remove it with sandbox_stop (remove: true) and create it again", name)
	case st.CPUs > b.opts.CPUs || st.Memory > b.opts.Memory || st.Disk > b.opts.Disk:
		return nil, say("sandbox %s is larger than the operator allows now; remove it with sandbox_stop (remove: true) and create it again", name)
	}
	return st, nil
}

// madeBefore says why a sandbox of this floor's file can't be used.
const madeBefore = "made under an older version of the operator's policy, or with other directories"

// getBack says how to get at its files.
const getBack = "for its files, the operator can restore the policy's text, or take them out with msb cp"

// staysWhenStopped is an error for a child, which its end removes with its files.
func staysWhenStopped(st *sandbox.Status) error {
	if st.Parent != "" {
		return say("sandbox %s is a child, and would be removed: its disk can't be replaced; destroy it with child_destroy, and make another with child_spawn", st.Name)
	}
	return nil
}

// has reports whether there is a sandbox of that name, of any version of the floor's file.
func (b *boxes) has(name string) bool {
	st, err := b.opts.Home.Inspect(name)
	return err == nil && strings.HasPrefix(st.Label, b.family)
}

// noSuch is ErrNoSandbox with the names of the sandboxes that can be used.
func (b *boxes) noSuch(name string) error {
	var names []string
	mine, err := b.mine()
	if err != nil {
		return err
	}
	for i := range mine {
		if mine[i].Label == b.label {
			names = append(names, mine[i].Name)
		}
	}
	there := "there is none yet"
	if len(names) > 0 {
		there = "there are: " + strings.Join(names, ", ")
	}
	return fmt.Errorf("%w: %s; %s; sandbox_create makes one", sandbox.ErrNoSandbox, name, there)
}

// longer reports whether a time exceeds a bound; 0 means without end, for both.
func longer(have, most time.Duration) bool { return most > 0 && (have == 0 || have > most) }

// only is the state directory restricted to this very sandbox: a later one of the same name may be somebody else's.
func (b *boxes) only(st *sandbox.Status) *sandbox.Home { return b.opts.Home.Only(st.Created) }
