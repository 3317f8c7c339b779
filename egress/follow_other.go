//go:build !linux

package egress

import "context"

// addrChanges has no announcer here; Follow reads the addresses again and
// again.
func addrChanges(context.Context) (<-chan struct{}, error) { return nil, nil }
