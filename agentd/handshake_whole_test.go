//go:build linux

package agentd

import (
	"net"
	"net/netip"
	"reflect"
	"testing"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/agentd/agentpb"
	"github.com/msb-project/msb/agentd/internal/system"
)

// complete fails the test for fields but one that have no value, which would not be compared.
func complete(t *testing.T, v reflect.Value, but string) {
	t.Helper()
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		if v.Field(i).IsZero() && name != but {
			t.Errorf("%s.%s is not compared", v.Type(), name)
		}
	}
}

// TestHandshakesCarryTheWholeRoot: volumes, caches and what else is mounted come to the guest as they were asked for.
func TestHandshakesCarryTheWholeRoot(t *testing.T) {
	mode := uint32(0o1711)
	disk := func(name string) agentclient.Disk { return agentclient.Disk{Serial: name, Device: "of-" + name} }
	guests := func(name string) system.Disk { return system.Disk{Serial: name, Device: "of-" + name} }
	upper, shared := guests("upper"), guests("caches")
	asked := agentclient.Root{
		Image: disk("image"), UpperDisk: disk("upper"), MakeDirs: []string{"/make"}, ReadOnly: true,
		Tmpfs:   []agentclient.Tmpfs{{Path: "/tmp", Size: 1, Mode: &mode, Exec: true}, {Path: "/run"}},
		Volumes: []agentclient.Volume{{Disk: disk("v0"), Path: "/data", ReadOnly: true}, {Disk: disk("v1"), Path: "/more"}},
		Caches:  []agentclient.Cache{{Key: "pip", Path: "~/.cache/pip"}, {Key: "npm", Path: "~/.npm"}}, CacheDisk: disk("caches"), CacheUser: "node",
	}
	want := system.Root{
		Image: guests("image"), Upper: &upper, MakeDirs: []string{"/make"}, ReadOnly: true,
		Tmpfs:   []system.Tmpfs{{Path: "/tmp", Size: 1, Mode: &mode, Exec: true}, {Path: "/run"}},
		Volumes: []system.Volume{{Disk: guests("v0"), Path: "/data", ReadOnly: true}, {Disk: guests("v1"), Path: "/more"}},
		Caches:  []system.Cache{{Key: "pip", Path: "~/.cache/pip"}, {Key: "npm", Path: "~/.npm"}}, CacheDisk: &shared, CacheUser: "node",
	}
	complete(t, reflect.ValueOf(want), "UpperBytes")
	for name, c := range map[string]struct {
		asked agentclient.Root
		want  system.Root
	}{
		"all":   {asked, want},
		"least": {agentclient.Root{Image: disk("image"), UpperMemoryBytes: 5}, system.Root{Image: guests("image"), UpperBytes: 5}},
	} {
		t.Run(name, func(t *testing.T) {
			s := dial(t, agentclient.Options{Root: &c.asked})
			if got := parseRoot(s.machine.request.GetRoot()); !reflect.DeepEqual(got, c.want) {
				t.Errorf("the guest's root is\n%+v\nwant\n%+v", got, c.want)
			}
		})
	}
}

// TestHandshakesCarryTheWholeNetwork in the same way.
func TestHandshakesCarryTheWholeNetwork(t *testing.T) {
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 7}
	addresses := []netip.Prefix{netip.MustParsePrefix("192.168.127.2/24"), netip.MustParsePrefix("fd6d:7362::2/64")}
	gateways := []netip.Addr{netip.MustParseAddr("192.168.127.1"), netip.MustParseAddr("fd6d:7362::1")}
	resolvers := []netip.Addr{netip.MustParseAddr("192.168.127.53")}
	host := netip.MustParseAddr("198.18.0.1")
	s := dial(t, agentclient.Options{Hostname: "box", Network: &agentclient.Network{
		MAC: mac, Addresses: addresses, Gateways: gateways, DNSServers: resolvers, MTU: 1400,
		Hosts: []agentclient.HostEntry{{Address: host, Names: []string{"db", "db.internal"}}},
	}})
	network, names, err := parseNetwork(s.machine.request)
	if err != nil {
		t.Fatal(err)
	}
	wantNetwork := system.Network{MAC: mac, Addresses: addresses, Gateways: gateways, MTU: 1400}
	wantNames := system.Names{Hostname: "box", Addresses: addresses, Resolver: true, DNS: resolvers, Hosts: []system.HostEntry{{Address: host, Names: []string{"db", "db.internal"}}}}
	complete(t, reflect.ValueOf(wantNetwork), "")
	complete(t, reflect.ValueOf(wantNames), "")
	if !reflect.DeepEqual(*network, wantNetwork) || !reflect.DeepEqual(names, wantNames) {
		t.Errorf("the guest has\n%+v\n%+v\nwant\n%+v\n%+v", *network, names, wantNetwork, wantNames)
	}
}

// TestI18_HandshakesKeepIdentitiesApart: each thing that makes a copy one of its own is asked for by itself.
func TestI18_HandshakesKeepIdentitiesApart(t *testing.T) {
	for what, c := range map[string]struct {
		o   agentclient.Options
		has func(*agentpb.HandshakeRequest) bool
	}{
		"a saved machine":     {agentclient.Options{Restored: true}, (*agentpb.HandshakeRequest).GetRestored},
		"a new identity":      {agentclient.Options{NewIdentity: true}, (*agentpb.HandshakeRequest).GetNewIdentity},
		"another's authority": {agentclient.Options{ForgetPEM: []byte("others")}, func(r *agentpb.HandshakeRequest) bool { return string(r.GetTrust().GetForgetPem()) == "others" }},
		"its own authority":   {agentclient.Options{CAPEM: []byte("own")}, func(r *agentpb.HandshakeRequest) bool { return string(r.GetTrust().GetCaPem()) == "own" }},
		"variables":           {agentclient.Options{TrustEnv: true}, func(r *agentpb.HandshakeRequest) bool { return r.GetTrust().GetSetEnv() }},
	} {
		t.Run(what, func(t *testing.T) {
			r := dial(t, c.o).machine.request
			set := 0
			for _, is := range []bool{r.GetRestored(), r.GetNewIdentity(), len(r.GetTrust().GetForgetPem()) > 0, len(r.GetTrust().GetCaPem()) > 0, r.GetTrust().GetSetEnv()} {
				if is {
					set++
				}
			}
			if !c.has(r) || set != 1 {
				t.Errorf("the guest is asked for %v", r)
			}
		})
	}
}
