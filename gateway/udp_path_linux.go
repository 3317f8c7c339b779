package gateway

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// setFragments lets the kernel fragment what the socket sends, or not: it then
// refuses what is larger than the path's MTU with EMSGSIZE.
func setFragments(raw syscall.RawConn, v6, allowed bool) error {
	level, option, value := unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO
	if v6 {
		level, option, value = unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO
	}
	if allowed {
		value = unix.IP_PMTUDISC_WANT // the same number for IPv6
	}
	var err error
	if cerr := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), level, option, value) }); cerr != nil {
		return cerr
	}
	return err
}

// pathMTU is what the kernel knows of the way to a connected socket's peer;
// 0 for nothing.
func pathMTU(raw syscall.RawConn, v6 bool) (mtu int) {
	level, option := unix.IPPROTO_IP, unix.IP_MTU
	if v6 {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_MTU
	}
	_ = raw.Control(func(fd uintptr) {
		if v, err := unix.GetsockoptInt(int(fd), level, option); err == nil {
			mtu = v
		}
	})
	return mtu
}
