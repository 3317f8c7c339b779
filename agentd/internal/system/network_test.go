//go:build linux

package system

import (
	"bytes"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// TestI18_MACsAreRenewed gives devices of a network namespace other addresses, twice.
func TestI18_MACsAreRenewed(t *testing.T) {
	runtime.LockOSThread() // never unlocked: the thread ends with the test, and its namespace with it
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal("it needs root, as make test does: ", err)
	}
	for _, name := range []string{"own0", "own1"} {
		tap := &netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: name}, Mode: netlink.TUNTAP_MODE_TAP}
		if err := netlink.LinkAdd(tap); err != nil {
			t.Fatal(err)
		}
	}
	addresses := func() map[string]net.HardwareAddr {
		links, err := netlink.LinkList()
		if err != nil {
			t.Fatal(err)
		}
		all := make(map[string]net.HardwareAddr)
		for _, l := range links {
			all[l.Attrs().Name] = l.Attrs().HardwareAddr
		}
		return all
	}
	seen := []map[string]net.HardwareAddr{addresses()}
	var listed Devices // once, as before a machine is saved
	if err := listed.List(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := listed.RenewMACs(net.HardwareAddr{2, 0, 0, 0, 0, 1}); err != nil {
			t.Fatal(err)
		}
		now := addresses()
		for _, before := range seen {
			for _, name := range []string{"own0", "own1"} {
				if bytes.Equal(before[name], now[name]) || now[name][0]&3 != 2 {
					t.Errorf("%s has %s, as before or not locally administered", name, now[name])
				}
			}
			if !bytes.Equal(before["lo"], now["lo"]) {
				t.Errorf("lo has %s", now["lo"])
			}
		}
		seen = append(seen, now)
	}
	for name, d := range map[string]*Devices{"listed before": &listed, "listed now": {}} {
		for _, own := range []string{"own0", "own1"} {
			l, err := d.find(addresses()[own])
			if err != nil || l.Attrs().Name != own {
				t.Errorf("%s, by its new address: %v, %v", name, l, err)
			}
		}
		if l, err := d.find(seen[0]["own0"]); err == nil {
			t.Errorf("%s: %s is found by the address that it had", name, l.Attrs().Name)
		}
	}
}

// TestI4_RoutersGiveNoAddresses: what the kernel makes of router advertisements by itself is off for the machine's devices,
// and is as it was for those that come later.
func TestI4_RoutersGiveNoAddresses(t *testing.T) {
	runtime.LockOSThread() // never unlocked: the thread ends with the test, and its namespace with it
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal("it needs root, as make test does: ", err)
	}
	tap := func(name string) {
		if err := netlink.LinkAdd(&netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: name}, Mode: netlink.TUNTAP_MODE_TAP}); err != nil {
			t.Fatal(err)
		}
	}
	setting := func(device, key string) string {
		b, err := os.ReadFile("/proc/sys/net/ipv6/conf/" + device + "/" + key)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(b))
	}
	tap("own0")
	keys, before := []string{"accept_ra", "autoconf", "accept_dad", "dad_transmits"}, map[string]string{}
	for _, key := range keys {
		before[key] = setting("default", key)
		if err := setSysctl("net/ipv6/conf/own0/"+key, "1"); err != nil {
			t.Fatal(err)
		}
	}
	NoAutoconf()
	tap("later0")
	for _, key := range keys {
		for device, want := range map[string]string{"own0": "0", "later0": before[key]} {
			if got := setting(device, key); got != want {
				t.Errorf("%s of %s is %s, want %s", key, device, got, want)
			}
		}
	}
}
