package egress

import (
	"context"

	"github.com/vishvananda/netlink"
)

// addrChanges announces changes of interface addresses by netlink. Several
// changes may become one announcement.
func addrChanges(ctx context.Context) (<-chan struct{}, error) {
	updates := make(chan netlink.AddrUpdate)
	if err := netlink.AddrSubscribeWithOptions(updates, ctx.Done(), netlink.AddrSubscribeOptions{
		// The default callback-less mode would drop errors silently; an error
		// ends the subscription by closing updates, which is announcement enough.
		ErrorCallback: func(error) {},
	}); err != nil {
		return nil, err
	}
	changes := make(chan struct{}, 1)
	go func() {
		defer close(changes)
		for range updates { // closed when ctx ends
			select {
			case changes <- struct{}{}:
			default:
			}
		}
	}()
	return changes, nil
}
