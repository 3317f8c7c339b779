package upstream

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/msb-project/msb/dnsguard/wire"
)

func TestI6_QueriesAreHardToGuess(t *testing.T) {
	t.Parallel()
	q := Query{Name: []byte("\x0clonger-names\x07example\x00"), Type: dns.TypeA}
	ids, cases := make(map[uint16]bool), make(map[string]bool)
	for range 200 {
		p := q.packet(true)
		ids[binary.BigEndian.Uint16(p)] = true
		cases[string(p[wire.HeaderLen:wire.HeaderLen+len(q.Name)])] = true
		if !bytes.Equal(wire.Lowered(p[wire.HeaderLen:wire.HeaderLen+len(q.Name)]), q.Name) {
			t.Fatalf("asks for another name: % x", p)
		}
	}
	if len(ids) < 190 || len(cases) < 190 {
		t.Errorf("%d ids and %d spellings in 200 queries", len(ids), len(cases))
	}
}

func TestResolvConfIsFollowed(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "resolv.conf")
	write := func(content string, age time.Duration) {
		t.Helper()
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, time.Time{}, time.Unix(1e9, 0).Add(age)); err != nil {
			t.Fatal(err)
		}
	}
	write("search corp.test\n# nameserver 192.0.2.9\nnameserver 192.0.2.1\n nameserver 192.0.2.2 \nnameserver nonsense\noptions ndots:5\n", 0)
	now := time.Duration(0)
	c := newSystemConf(Options{Clock: func() time.Duration { return now }, ResolvConf: path})
	addrs := func() (list []string) {
		for _, s := range c.servers() {
			list = append(list, s.server.(*plainServer).addr.String())
		}
		return list
	}
	if got := addrs(); !slices.Equal(got, []string{"192.0.2.1:53", "192.0.2.2:53"}) {
		t.Errorf("first: %v", got)
	}
	kept := c.servers()[1]
	write("nameserver 192.0.2.2\nnameserver 2001:db8::1\nnameserver fe80::1%eth0\nnameserver 192.0.2.4\n", time.Second)
	if got := addrs(); len(got) != 2 {
		t.Errorf("read again within resolvConfAge: %v", got)
	}
	now += resolvConfAge
	if got := addrs(); !slices.Equal(got, []string{"192.0.2.2:53", "[2001:db8::1]:53", "[fe80::1%eth0]:53"}) {
		t.Errorf("after the change: %v", got)
	}
	if c.servers()[0] != kept {
		t.Error("a server that stayed lost its state")
	}
	_ = os.Remove(path)
	now += resolvConfAge
	if got := addrs(); len(got) != 3 {
		t.Errorf("while the file is away: %v", got)
	}
	if err := os.Mkdir(path, 0o700); err != nil { // even root can't read it as a file
		t.Fatal(err)
	}
	now += resolvConfAge
	if got := addrs(); len(got) != 3 {
		t.Errorf("while the file can't be read: %v", got)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	write("nameserver 192.0.2.7\n", 2*time.Second)
	now += resolvConfAge
	if got := addrs(); !slices.Equal(got, []string{"192.0.2.7:53"}) {
		t.Errorf("after it can be read again: %v", got)
	}
}
