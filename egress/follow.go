package egress

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"
)

// rereadEvery bounds how long a change that was never announced (an overrun of
// the kernel's queue, a system without announcements) stays unseen.
const rereadEvery = 10 * time.Second

// hostAddrs is where the host's addresses come from.
type hostAddrs struct {
	// read returns the addresses of all interfaces.
	read func() ([]netip.Addr, error)
	// changes announces changes until ctx ends or the announcer breaks, then
	// closes the channel. It may return nil where there is no announcer.
	changes func(ctx context.Context) (<-chan struct{}, error)
	// tick is time.Tick with an end.
	tick func(ctx context.Context, d time.Duration) <-chan time.Time
}

func realHostAddrs() hostAddrs {
	return hostAddrs{read: readInterfaces, changes: addrChanges, tick: tick}
}

// Refresh reads the host's own addresses from its interfaces, once. Call it
// before the first verdict: an engine that doesn't know the host's addresses
// can't keep a guest away from them.
func (c *Classifier) Refresh() error { return c.refresh(readInterfaces) }

func (c *Classifier) refresh(read func() ([]netip.Addr, error)) error {
	addrs, err := read()
	if err != nil {
		return fmt.Errorf("the host's interface addresses can't be read: %w", err)
	}
	c.SetHost(addrs...)
	return nil
}

// Follow keeps the host's own addresses current until ctx ends: at once where the
// system announces changes (netlink on Linux), and every ten seconds anyway.
// changed is called after each time, when addresses, routes or routing rules may
// have changed. It blocks; the caller owns the goroutine. trouble is called with
// errors, after which the last known addresses stay in force. Both may be nil.
func (c *Classifier) Follow(ctx context.Context, changed func(), trouble func(error)) {
	c.follow(ctx, realHostAddrs(), changed, trouble)
}

func (c *Classifier) follow(ctx context.Context, h hostAddrs, changed func(), trouble func(error)) {
	report := func(err error) {
		if err != nil && trouble != nil {
			trouble(err)
		}
	}
	read := func() {
		report(c.refresh(h.read))
		if changed != nil {
			changed()
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	var changes <-chan struct{}
	defer func() {
		cancel()
		drain(changes) // the announcer ends before Follow does
	}()
	ticks := h.tick(ctx, rereadEvery)
	for {
		if changes == nil {
			var err error
			if changes, err = h.changes(ctx); err != nil {
				report(fmt.Errorf("changes of the host's addresses aren't announced, reading them every %v: %w", rereadEvery, err))
			}
		}
		// Subscribed first, read second: no change falls between the two.
		read()
		select {
		case <-ctx.Done():
			return
		case <-ticks:
		case _, ok := <-changes:
			if !ok {
				changes = nil
				read()   // the last change may be why it broke
				select { // not at once: a broken announcer must not make this loop spin
				case <-ctx.Done():
					return
				case <-ticks:
				}
			}
		}
	}
}

func drain(ch <-chan struct{}) {
	if ch == nil {
		return
	}
	for range ch { // until it is closed
	}
}

func tick(ctx context.Context, d time.Duration) <-chan time.Time {
	t := time.NewTicker(d)
	context.AfterFunc(ctx, t.Stop)
	return t.C
}

// readInterfaces returns the addresses of all interfaces, up or not.
func readInterfaces() ([]netip.Addr, error) {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	addrs := make([]netip.Addr, 0, len(list))
	for _, a := range list {
		ipNet, ok := a.(*net.IPNet)
		if !ok {
			continue
		}
		if addr, ok := netip.AddrFromSlice(ipNet.IP); ok {
			addrs = append(addrs, addr)
		}
	}
	return addrs, nil
}
