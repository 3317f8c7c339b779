package agentclient

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestSavesGoAsTheSupervisorSays: a save takes two steps at both ends, and the client hears how each of them went.
func TestSavesGoAsTheSupervisorSays(t *testing.T) {
	t.Parallel()
	own := errors.New("the disk's copy failed")
	for what, c := range map[string]struct {
		before, after error // of the supervisor, before and behind still
		still         error
		want          error
		text          string
		stills        int
	}{
		"done":             {stills: 1},
		"not saved":        {before: fmt.Errorf("%w: it is another machine", ErrNotSaved), want: ErrNotSaved, text: "can't be saved: it is another machine"},
		"failed":           {before: errors.New("no room\x1b"), text: "no room?"},
		"failed late":      {after: errors.New("no room left"), text: "no room left", stills: 1},
		"given up":         {still: own, want: own, stills: 1},
		"paused":           {before: ErrPaused, want: ErrPaused},
		"paused meanwhile": {after: ErrPaused, want: ErrPaused, stills: 1},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			told := make(chan error, 1)
			client := serving(t, dialFake(t, &fakeAgent{}), Services{Supervisor: &fixedSupervisor{}, Save: func(ctx context.Context, work string, limit time.Duration, still func(context.Context) error) error {
				if work != "/work" || limit != time.Minute {
					t.Errorf("a save in %q for %s", work, limit)
				}
				if c.before != nil {
					told <- nil
					return c.before
				}
				err := still(ctx)
				told <- err
				return errors.Join(c.after, err)
			}})
			stills := 0
			err := client.Save(t.Context(), "/work", time.Minute, func(context.Context) error { stills++; return c.still })
			if c.want == nil && c.text == "" && err != nil || c.want != nil && !errors.Is(err, c.want) || c.text != "" && (err == nil || !strings.HasSuffix(err.Error(), c.text)) {
				t.Errorf("%v, want %v %q", err, c.want, c.text)
			}
			if err := <-told; (err != nil) != (c.still != nil) || stills != c.stills {
				t.Errorf("the supervisor hears %v; %d stills", err, stills)
			}
		})
	}
}

// TestI11_SavesEndWithTheirLimit: the client's copy of the disk has the limit of the call, and the supervisor's own limit ends
// its wait for that.
func TestI11_SavesEndWithTheirLimit(t *testing.T) {
	t.Parallel()
	held := make(chan error, 1)
	client := serving(t, dialFake(t, &fakeAgent{}), Services{Supervisor: &fixedSupervisor{}, Save: func(ctx context.Context, _ string, _ time.Duration, still func(context.Context) error) error {
		short, cancel := context.WithCancel(ctx)
		time.AfterFunc(time.Millisecond, cancel)
		err := still(short)
		held <- err
		return err
	}})
	err := client.Save(t.Context(), "/work", time.Minute, func(ctx context.Context) error {
		if end, ok := ctx.Deadline(); !ok || time.Until(end) > time.Minute {
			t.Errorf("the copy may take until %s, %v", end, ok)
		}
		if err := <-held; !errors.Is(err, context.Canceled) {
			t.Errorf("the supervisor's own limit is over: %v", err)
		}
		return nil
	})
	if err == nil {
		t.Error("a save that was ended is done")
	}
}
