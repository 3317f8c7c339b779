package agentclient

import (
	"context"
	"fmt"
	"path"

	"github.com/msb-project/msb/agentd/agentpb"
)

// Change is what happened to a file.
type Change int

// The changes. ChangeLost has no path: events were lost, and the whole tree has to be read
// again.
const (
	ChangeLost Change = iota
	ChangeCreated
	ChangeWritten
	ChangeRemoved
	ChangeAttributes
)

// String names the change in one word.
func (c Change) String() string {
	names := [...]string{"lost", "created", "written", "removed", "attributes"}
	if c < 0 || int(c) >= len(names) {
		return fmt.Sprintf("Change(%d)", int(c))
	}
	return names[c]
}

// Event is one change of one file.
type Event struct {
	Change Change
	Path   string
}

// Watch calls ready once the guest watches name, then event for what happens at
// and below it, until ctx ends or the session does. Without recursive, only a
// directory's own entries are watched. ready may be nil.
func (f *Files) Watch(ctx context.Context, name string, recursive bool, ready func(), event func(Event)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := f.api.Watch(ctx, &agentpb.WatchRequest{Path: name, Recursive: recursive})
	if err != nil {
		return f.fileError(ctx, err)
	}
	for first := true; ; first = false {
		m, err := stream.Recv()
		if err != nil {
			return f.fileError(ctx, err)
		}
		if first && ready != nil {
			ready()
		}
		for _, e := range m.GetEvents() {
			at := string(e.GetPath())
			if !path.IsAbs(at) || len(at) > maxTargetBytes || e.GetKind() <= 0 || Change(e.GetKind()) > ChangeAttributes {
				return f.c.fail(fmt.Errorf("%w: an event %d of %q", ErrProtocol, e.GetKind(), guestText(at)))
			}
			event(Event{Change: Change(e.GetKind()), Path: at})
		}
		if m.GetOverflow() {
			event(Event{})
		}
	}
}
