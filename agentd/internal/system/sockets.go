//go:build linux

package system

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"strconv"
)

// Socket is a socket that takes connections, or datagrams from anybody.
type Socket struct {
	Network string // "tcp" or "udp"
	Address netip.AddrPort
}

// ListeningSockets are those of the guest, at most limit.
func ListeningSockets(limit int) (all []Socket, err error) {
	for _, table := range []struct{ file, network, state string }{
		{"tcp", "tcp", "0A"}, {"tcp6", "tcp", "0A"}, {"udp", "udp", "07"}, {"udp6", "udp", "07"}, // TCP_LISTEN, and TCP_CLOSE of what is not connected
	} {
		// Of this thread: /proc/net is that of the main one, which may have been put into another namespace.
		b, err := os.ReadFile("/proc/thread-self/net/" + table.file)
		if errors.Is(err, fs.ErrNotExist) {
			continue // a kernel without IPv6
		}
		if err != nil {
			return nil, err
		}
		for line := range bytes.Lines(b) {
			f := bytes.Fields(line)
			if len(f) < 4 || string(f[3]) != table.state {
				continue
			}
			if a, ok := parseSocketAddress(string(f[1])); ok && len(all) < limit {
				all = append(all, Socket{table.network, a})
			}
		}
	}
	return all, nil
}

// parseSocketAddress reads "0100007F:1F90": words of 32 bits in the machine's order, which is little-endian.
func parseSocketAddress(s string) (netip.AddrPort, bool) {
	host, port, _ := bytes.Cut([]byte(s), []byte(":"))
	raw, err := hex.DecodeString(string(host))
	number, errPort := strconv.ParseUint(string(port), 16, 16)
	if err != nil || errPort != nil || len(raw)%4 != 0 {
		return netip.AddrPort{}, false
	}
	for i := 0; i < len(raw); i += 4 {
		binary.BigEndian.PutUint32(raw[i:], binary.LittleEndian.Uint32(raw[i:]))
	}
	addr, ok := netip.AddrFromSlice(raw)
	return netip.AddrPortFrom(addr.Unmap(), uint16(number)), ok
}
