package vm

import (
	"context"
	"fmt"
	"io"
	"slices"
)

// Saver is a Machine whose memory and state can be saved while it runs.
type Saver interface {
	Machine
	// Saved says what it takes to go on from a state that Save writes.
	Saved() Saved
	// Save stops the guest, writes its memory and state to w, calls still, and lets the guest go on: whatever happens, and
	// also when ctx ends. While still runs, all that the guest has written to its disks is in their files. An error of
	// still's is returned.
	Save(ctx context.Context, w io.Writer, still func(context.Context) error) error
}

// Resume is a machine that was saved.
type Resume struct {
	// Saved is the Saver's.
	Saved Saved
	// State reads what Save wrote. It gives the last bytes only if all of them are what was written.
	State io.Reader
	// Begin is called when all is loaded, right before the guest goes on; an error keeps it from that.
	Begin func() error
}

// Saved says what a machine was that was saved.
type Saved struct {
	// Backend is the name of the one that can go on with it.
	Backend string `json:"backend"`
	// Needs have to be the same where it goes on.
	Needs []Need `json:"needs"`
	// ClockKHz is the frequency of the guest's clock, which has to be nearly the same.
	ClockKHz uint64 `json:"clock_khz"`
}

// Need is one thing that a saved machine needs, with its value, for people.
type Need struct {
	What string `json:"what"`
	Is   string `json:"is"`
}

// CheckNeeds compares what was needed with what there is; the error wraps ErrNotResumed and names the first difference.
func CheckNeeds(saved, here []Need) error {
	for _, n := range saved {
		i := slices.IndexFunc(here, func(h Need) bool { return h.What == n.What })
		if i < 0 {
			return fmt.Errorf("%w: %s was %s, and there is none here", ErrNotResumed, n.What, n.Is)
		}
		if here[i].Is != n.Is {
			return fmt.Errorf("%w: %s was %s, and is %s here", ErrNotResumed, n.What, n.Is, here[i].Is)
		}
	}
	for _, h := range here {
		if !slices.ContainsFunc(saved, func(n Need) bool { return h.What == n.What }) {
			return fmt.Errorf("%w: %s is %s here, and there was none", ErrNotResumed, h.What, h.Is)
		}
	}
	return nil
}
