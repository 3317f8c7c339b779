//go:build linux

package agentd

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/agentd/agentpb"
)

func (f *fakeMachine) isFrozen() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.frozen
}

// thawed waits until the disk is not frozen.
func (f *fakeMachine) thawed(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); f.isFrozen(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the disk stays frozen")
		}
	}
}

func TestFreezesLastUntilThaw(t *testing.T) {
	s := dial(t, agentclient.Options{})
	for name, c := range map[string]*agentclient.Client{"owner": s.Client, "command": proxied(t, s)} {
		for range 2 {
			f, err := c.Freeze(t.Context(), time.Minute)
			if err != nil || !s.machine.isFrozen() {
				t.Fatalf("%s: %v", name, err)
			}
			if _, err := c.Freeze(t.Context(), time.Minute); !errors.Is(err, agentclient.ErrBusy) {
				t.Errorf("%s: a second one: %v, want ErrBusy", name, err)
			}
			if err := f.Thaw(); err != nil || s.machine.isFrozen() {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// TestFreezesEndWithoutTheHost: nobody thaws the disk, and it is thawed. The first entry is the twin: it stays frozen for
// as long as the host holds it.
func TestFreezesEndWithoutTheHost(t *testing.T) {
	for what, tc := range map[string]struct {
		longest, limit time.Duration
		leave          func(cancel func(), c *agentclient.Client)
		stays          bool
	}{
		"held":               {time.Minute, time.Minute, func(func(), *agentclient.Client) {}, true},
		"the host's limit":   {time.Minute, 20 * time.Millisecond, func(func(), *agentclient.Client) {}, false},
		"the agent's":        {20 * time.Millisecond, time.Hour, func(func(), *agentclient.Client) {}, false},
		"the call cancelled": {time.Minute, time.Minute, func(cancel func(), _ *agentclient.Client) { cancel() }, false},
		"the client gone":    {time.Minute, time.Minute, func(_ func(), c *agentclient.Client) { c.Close() }, false},
	} {
		t.Run(what, func(t *testing.T) {
			s := newSession(t, func(s *server) { s.maxFreeze = tc.longest })
			client, err := agentclient.Dial(t.Context(), s.host, agentclient.Options{})
			if err != nil {
				t.Fatal(err)
			}
			s.Client = client
			t.Cleanup(func() { client.Close() })
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			c := proxied(t, s)
			f, err := c.Freeze(ctx, tc.limit)
			if err != nil && tc.limit > time.Second && tc.longest > time.Second {
				t.Fatal(err)
			}
			tc.leave(cancel, c)
			if tc.stays {
				if !s.machine.isFrozen() {
					t.Error("it was thawed before its time")
				}
				cancel()
			}
			s.machine.thawed(t)
			if err != nil {
				return // the limit was over before the answer came
			}
			if err := f.Thaw(); err == nil {
				t.Error("a copy that was made meanwhile is taken for good")
			}
		})
	}
}

// TestFailedFreezesAreThawed: nothing stays frozen.
func TestFailedFreezesAreThawed(t *testing.T) {
	s := dial(t, agentclient.Options{})
	if _, err := s.Freeze(t.Context(), -1); err == nil {
		t.Error("a freeze without a limit")
	}
	s.machine.mu.Lock()
	s.machine.freeze = errors.New("it has no disk")
	s.machine.mu.Unlock()
	if _, err := s.Freeze(t.Context(), time.Minute); !errors.Is(err, agentclient.ErrRefused) {
		t.Errorf("%v, want ErrRefused", err)
	}
	if _, err := s.Stats(t.Context()); err != nil {
		t.Errorf("the session: %v", err)
	}
}

// TestShutdownThaws: what is frozen could not be written back.
func TestShutdownThaws(t *testing.T) {
	s := dial(t, agentclient.Options{})
	if _, err := s.Freeze(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := s.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.machine.thawed(t)
}

// TestSlowFreezesAreThawed: writing back took longer than the disk may be held, so that nothing is copied. The twin has the time.
func TestSlowFreezesAreThawed(t *testing.T) {
	for longest, want := range map[time.Duration]error{20 * time.Millisecond: agentclient.ErrRefused, time.Minute: nil} {
		t.Run(longest.String(), func(t *testing.T) {
			s := dial(t, agentclient.Options{}, func(s *server) { s.maxFreeze = longest })
			s.machine.slow = 40 * time.Millisecond
			f, err := s.Freeze(t.Context(), time.Minute)
			if !errors.Is(err, want) {
				t.Errorf("%v, want %v", err, want)
			}
			if err == nil && want == nil {
				if err := f.Thaw(); err != nil {
					t.Error(err)
				}
			}
			s.machine.thawed(t)
		})
	}
}

// TestDisksThatWereThawedMeanwhileAreNoCopies: a program of the guest's thaws the disk while it is copied.
func TestDisksThatWereThawedMeanwhileAreNoCopies(t *testing.T) {
	s := dial(t, agentclient.Options{})
	f, err := s.Freeze(t.Context(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.machine.Thaw(); err != nil {
		t.Fatal(err)
	}
	if err := f.Thaw(); !errors.Is(err, agentclient.ErrRefused) {
		t.Errorf("%v, want ErrRefused", err)
	}
	if f, err = s.Freeze(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := f.Thaw(); err != nil {
		t.Errorf("the next one: %v", err)
	}
}

// TestI11_FreezesLastAMinuteAtMost, whatever the host asks for.
func TestI11_FreezesLastAMinuteAtMost(t *testing.T) {
	if s := newSession(t); s.server.maxFreeze != time.Minute {
		t.Errorf("a disk may be held for %v", s.server.maxFreeze)
	}
}

// silentHost asks for a freeze, and says nothing any more.
type silentHost struct {
	grpc.ServerStream
	limit time.Duration
	asked bool
	gone  chan struct{}
}

func (h *silentHost) Recv() (*agentpb.FreezeRequest, error) {
	if !h.asked {
		h.asked = true
		return &agentpb.FreezeRequest{LimitNs: int64(h.limit)}, nil
	}
	<-h.gone
	return nil, io.EOF
}

func (h *silentHost) Send(*agentpb.FreezeResponse) error { return nil }

// TestFreezesEndByTheAgentsClock: a host that stopped, or has died, ends no call, and its limit holds all the same.
func TestFreezesEndByTheAgentsClock(t *testing.T) {
	machine := &fakeMachine{}
	s := &freezeServer{ops: machine, longest: time.Hour}
	host := &silentHost{limit: time.Millisecond, gone: make(chan struct{})}
	ended := make(chan error, 1)
	go func() { ended <- s.Freeze(host) }()
	select {
	case err := <-ended:
		if !errors.Is(err, errFrozenTooLong) || machine.isFrozen() {
			t.Errorf("%v, frozen %v", err, machine.isFrozen())
		}
	case <-time.After(20 * time.Second):
		t.Error("the disk stays frozen")
	}
	close(host.gone)
}

// TestFreezesNeedALimit: none, or one below zero, is the host's mistake, and the disk is not frozen.
func TestFreezesNeedALimit(t *testing.T) {
	machine := &fakeMachine{freeze: errors.New("it is frozen for once")}
	for _, limit := range []time.Duration{0, -time.Second} {
		host := &silentHost{limit: limit, gone: make(chan struct{})}
		close(host.gone)
		wantCode(t, limit.String(), (&freezeServer{ops: machine, longest: time.Hour}).Freeze(host), codes.InvalidArgument)
	}
	if machine.isFrozen() {
		t.Error("the disk was frozen")
	}
}
