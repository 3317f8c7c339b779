//go:build linux

package system

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestDisksAreFoundBySerialFirst(t *testing.T) {
	t.Parallel()
	sys := tree(t, map[string]string{
		"vda/serial": "agentd\n", "vdb/serial": "image", "vdc/size": "1", "sda/serial": "upper", "vdd/serial": "",
	})
	for d, want := range map[Disk]string{
		{Serial: "image"}:                   "vdb",
		{Serial: "image", Device: "vdc"}:    "vdb",
		{Serial: "upper", Device: "vdc"}:    "vdc",
		{Device: "vdd"}:                     "vdd",
		{Serial: "upper"}:                   "", // sda is none of ours
		{Device: "vdz"}:                     "",
		{Device: "../../../etc/passwd"}:     "",
		{Device: "sda"}:                     "",
		{}:                                  "",
		{Serial: "nothing", Device: "vda/"}: "",
	} {
		if got := d.lookup(sys); got != want {
			t.Errorf("%+v: got %q, want %q", d, got, want)
		}
	}
}

func TestPortIsFoundByName(t *testing.T) {
	t.Parallel()
	class := tree(t, map[string]string{"vport0p0/name": "console\n", "vport0p1/name": "msb.agent\n", "vport1p0/other": ""})
	if got := findPort(class, "msb.agent"); got != "vport0p1" {
		t.Errorf("got %q", got)
	}
	if got := findPort(class, "msb"); got != "" {
		t.Errorf("got %q", got)
	}
}

func TestNamesReplaceWhatTheImageHas(t *testing.T) {
	t.Parallel()
	etc := filepath.Join(t.TempDir(), "etc")
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, []byte("untouched"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(etc, 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(etc, "resolv.conf")); err != nil {
		t.Fatal(err)
	}
	n := Names{
		Hostname: "box", Resolver: true,
		Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.2/24")},
		DNS:       []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")},
		Hosts:     []HostEntry{{netip.MustParseAddr("198.18.0.1"), []string{"a", "b"}}},
	}
	for range 2 {
		if err := n.Write(etc); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		"hostname":    "box\n",
		"hosts":       "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n10.0.0.2\tbox\n198.18.0.1\ta b\n",
		"resolv.conf": "nameserver 10.0.0.1\nnameserver fd00::1\noptions edns0 timeout:5 attempts:2\n",
	} {
		if b, err := os.ReadFile(filepath.Join(etc, name)); err != nil || string(b) != want {
			t.Errorf("%s: %v\ngot  %q\nwant %q", name, err, b, want)
		}
	}
	if b, err := os.ReadFile(outside); err != nil || string(b) != "untouched" {
		t.Errorf("the link was followed: %q, %v", b, err)
	}
}

func TestI14_MountPointsAreNeverLinks(t *testing.T) {
	t.Parallel()
	root, victim := t.TempDir(), t.TempDir()
	for _, at := range []string{"proc", "dev"} {
		if err := os.Symlink(victim, filepath.Join(root, at)); err != nil {
			t.Fatal(err)
		}
		if err := ownDirectory(filepath.Join(root, at), 0o755); err != nil {
			t.Fatal(err)
		}
		if st, err := os.Lstat(filepath.Join(root, at)); err != nil || !st.IsDir() {
			t.Errorf("%s: %v, %v", at, st, err)
		}
	}
	if err := ownDirectory(filepath.Join(root, "tmp"), 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(filepath.Join(root, "tmp")); err != nil || st.Mode() != os.ModeDir|os.ModeSticky|0o777 {
		t.Errorf("tmp: %v, %v", st.Mode(), err)
	}
}

func TestStatsAreRead(t *testing.T) {
	t.Parallel()
	s := ReadStats()
	if s.MemoryTotal <= 0 || s.MemoryAvailable <= 0 || s.MemoryAvailable > s.MemoryTotal || s.Uptime <= 0 || s.CPUBusy <= 0 || s.Processes <= 0 {
		t.Errorf("got %+v", s)
	}
	if ThreadLimit() <= 0 {
		t.Error("no thread limit")
	}
	if !strings.Contains(Disk{Serial: "x"}.String(), `"x"`) {
		t.Error("a disk does not say its name")
	}
}
