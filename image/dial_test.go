package image

import (
	"context"
	"net"
)

// dialerTo connects to one loopback address whatever was asked for.
func dialerTo(address string) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, address)
	}
}
