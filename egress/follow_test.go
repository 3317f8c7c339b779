package egress

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeHost is a host whose addresses change when the test says so.
type fakeHost struct {
	addrs   chan []netip.Addr // what the next read returns
	changes chan struct{}
	ticks   chan time.Time
}

func newFakeHost() *fakeHost {
	return &fakeHost{addrs: make(chan []netip.Addr), changes: make(chan struct{}), ticks: make(chan time.Time)}
}

func (h *fakeHost) source(ctx context.Context) hostAddrs {
	return hostAddrs{
		read: func() ([]netip.Addr, error) {
			select {
			case a := <-h.addrs:
				if a == nil {
					return nil, errors.New("no interfaces today")
				}
				return a, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		},
		changes: func(ctx context.Context) (<-chan struct{}, error) {
			out := make(chan struct{})
			go func() {
				defer close(out)
				for {
					select {
					case <-h.changes:
						select {
						case out <- struct{}{}:
						case <-ctx.Done():
							return
						}
					case <-ctx.Done():
						return
					}
				}
			}()
			return out, nil
		},
		tick: func(context.Context, time.Duration) <-chan time.Time { return h.ticks },
	}
}

func TestI5_FollowLearnsAddressesAddedWhileRunning(t *testing.T) {
	h := newFakeHost()
	c := NewClassifier()
	ctx, cancel := context.WithCancel(context.Background())
	done, trouble := make(chan struct{}), make(chan error, 4)
	go func() { defer close(done); c.follow(ctx, h.source(ctx), nil, func(err error) { trouble <- err }) }()

	first, second := netip.MustParseAddr("203.0.114.7"), netip.MustParseAddr("2a01:4f8::7")
	h.addrs <- []netip.Addr{first}
	h.changes <- struct{}{}
	h.addrs <- []netip.Addr{first, second} // taken only after the first was stored
	h.changes <- struct{}{}
	h.addrs <- nil // a failing read
	if err := <-trouble; err == nil {
		t.Error("a failing read was not reported")
	}
	for _, a := range []netip.Addr{first, second} {
		if got := c.class(a); got != ClassHost {
			t.Errorf("%v is %v, want host (and to stay so when a read fails)", a, got)
		}
	}
	h.ticks <- time.Time{}
	h.addrs <- []netip.Addr{second}
	h.ticks <- time.Time{}
	if got := c.class(first); got != ClassPublic {
		t.Errorf("%v is %v after it was removed, want public", first, got)
	}
	cancel()
	<-done
}

// A change may be what broke the announcer: it isn't left for the next tick.
func TestI5_FollowReadsAgainWhenAnnouncementsBreak(t *testing.T) {
	h := newFakeHost()
	c := NewClassifier()
	ctx, cancel := context.WithCancel(context.Background())
	broken, done := make(chan struct{}), make(chan struct{})
	source := h.source(ctx)
	source.changes = func(context.Context) (<-chan struct{}, error) { return broken, nil }
	go func() { defer close(done); c.follow(ctx, source, nil, nil) }()
	defer func() { cancel(); <-done }()
	added := netip.MustParseAddr("203.0.114.7")
	h.addrs <- []netip.Addr{}
	close(broken)
	select {
	case h.addrs <- []netip.Addr{added}:
	case h.ticks <- time.Time{}:
		t.Fatal("the addresses were not read")
	}
	h.ticks <- time.Time{} // taken once they are in force
	if got := c.class(added); got != ClassHost {
		t.Errorf("%v is %v, want host", added, got)
	}
}

func TestFollowEndsWithItsContext(t *testing.T) {
	c := NewClassifier()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); c.Follow(ctx, nil, nil) }()
	cancel()
	<-done // goleak sees what is left
}

func TestI5_RefreshKnowsTheHostsInterfaces(t *testing.T) {
	c := NewClassifier()
	if err := c.Refresh(); err != nil {
		t.Fatal(err)
	}
	addrs, err := readInterfaces()
	if err != nil || len(addrs) == 0 {
		t.Fatalf("no interface addresses on this machine: %v", err)
	}
	for _, a := range addrs {
		if got := c.class(a); got != ClassHost {
			t.Errorf("%v is %v, want host", a, got)
		}
	}
}
