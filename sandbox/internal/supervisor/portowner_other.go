//go:build !linux

package supervisor

import "net/netip"

func portOwner(netip.AddrPort, string) string { return "another process" }
