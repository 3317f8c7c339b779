package egress

import (
	"context"
	"errors"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// settle is the least time between two announcements: a host whose routes change
// all the time (a routing daemon) shall not judge all the time.
const settle = 20 * time.Millisecond

// addrChanges announces changes of interface addresses, routes and routing rules
// by netlink. Several changes may become one announcement.
func addrChanges(ctx context.Context) (<-chan struct{}, error) {
	s, err := nl.Subscribe(unix.NETLINK_ROUTE,
		unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV4_RULE,
		unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_IPV6_ROUTE, unix.RTNLGRP_IPV6_RULE)
	if err != nil {
		return nil, err
	}
	changes := make(chan struct{}, 1)
	stop := context.AfterFunc(ctx, s.Close) // wakes Receive
	go func() {
		defer close(changes)
		defer func() {
			if stop() {
				s.Close()
			}
		}()
		for {
			// An overrun of the kernel's queue is a change, too: what was lost is unknown.
			if _, _, err := s.Receive(); err != nil && !errors.Is(err, unix.ENOBUFS) {
				return
			}
			select {
			case changes <- struct{}{}:
			default:
			}
			select {
			case <-ctx.Done():
			case <-time.After(settle):
			}
		}
	}()
	return changes, nil
}
