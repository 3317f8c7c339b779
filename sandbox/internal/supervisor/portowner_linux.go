package supervisor

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// portOwner says in words which process listens at an address of this machine, as far as it may be seen. proto is "tcp"
// or "udp".
func portOwner(a netip.AddrPort, proto string) string {
	inode := listenerOf(a, proto)
	if inode == "" {
		return "another process"
	}
	fds, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		return "another process"
	}
	for _, fd := range fds {
		to, err := os.Readlink(fd)
		if err != nil || to != "socket:["+inode+"]" {
			continue
		}
		pid := strings.Split(fd, "/")[2]
		name, err := os.ReadFile(filepath.Join("/proc", pid, "comm"))
		if err != nil {
			break
		}
		return fmt.Sprintf("%s (process %s)", strings.TrimSpace(string(name)), pid)
	}
	return "a process of another user, or one that hides its files"
}

// listening are TCP_LISTEN as /proc/net/tcp writes it, and TCP_CLOSE, which a UDP socket without a peer has.
var listening = map[string]string{"tcp": "0A", "udp": "07"}

// listenerOf returns the inode of the socket that listens at an address, or at all of this machine's; "" if none is
// found.
func listenerOf(a netip.AddrPort, proto string) string {
	for _, table := range []string{"/proc/net/" + proto, "/proc/net/" + proto + "6"} {
		f, err := os.Open(table)
		if err != nil {
			continue
		}
		defer f.Close()
		for lines := bufio.NewScanner(f); lines.Scan(); {
			field := strings.Fields(lines.Text())
			if len(field) < 10 || field[3] != listening[proto] {
				continue
			}
			got, ok := procAddress(field[1])
			if ok && got.Port() == a.Port() && overlap(got.Addr(), a.Addr()) {
				return field[9]
			}
		}
	}
	return ""
}

// procAddress reads an address of /proc/net/tcp: words of 32 bits in the host's order, in hexadecimal, and the port.
func procAddress(s string) (netip.AddrPort, bool) {
	text, port, _ := strings.Cut(s, ":")
	raw, err := hex.DecodeString(text)
	p, err2 := hex.DecodeString(port)
	if err != nil || err2 != nil || len(raw)%4 != 0 || len(p) != 2 {
		return netip.AddrPort{}, false
	}
	for i := 0; i < len(raw); i += 4 {
		slices.Reverse(raw[i : i+4])
	}
	a, ok := netip.AddrFromSlice(raw)
	return netip.AddrPortFrom(a.Unmap(), binary.BigEndian.Uint16(p)), ok
}
