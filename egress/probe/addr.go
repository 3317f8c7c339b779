package probe

import "net/netip"

func addrPort(t Target) netip.AddrPort { return netip.AddrPortFrom(t.Addr, t.Port) }
