//go:build vmtest

package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/msb-project/msb/netstack/netstacktest"
)

// attack is a case of a real guest: a script for its shell, and what may be seen outside meanwhile.
type attack struct {
	name, script string
	// may are the ends that packets may have.
	may []string
	// before changes the world first.
	before func()
	// outside looks at what else was seen, and at what the script printed.
	outside func(t *testing.T, s *sight, out string)
}

// run tries the attacks one after the other. Whatever they do, nothing but what they may is seen outside.
func (i *island) run(a *attacker, attacks []attack) {
	for _, c := range attacks {
		i.t.Run(c.name, func(t *testing.T) {
			if c.before != nil {
				c.before()
			}
			out := a.sh(c.script)
			s := i.seen()
			if bad := i.trespass(&s, c.may...); len(bad) > 0 {
				t.Errorf("seen outside:\n%s\nthe guest says\n%s", strings.Join(bad, "\n"), out)
			}
			if strings.Contains(out, "REACHED") {
				t.Errorf("the guest says\n%s", out)
			}
			if c.outside != nil {
				c.outside(t, &s, out)
			}
			t.Logf("%d packets; the guest says\n%s", len(s.packets), out)
		})
	}
}

// Everything public is open, so that only the rules for special addresses and the frame guard stand
// between the guest and the rest. The resolver answers names that turn inward.
const openPolicy = `
[egress]
default = "public"
[dns]
servers = ["udp://127.0.0.1:53"]
[limits]
tcp_connections = 32
udp_flows = 16
`

const (
	public    = "45.33.32.156"
	publicHex = "0x2d21209c" // the same
	// connect tries the addresses in $1 … at port 80.
	connect = `connect() { for a; do nc -w 3 $a 80 </dev/null && echo "REACHED $a"; done; }
`
)

// specials are one or more addresses of each class that is not public, and of each form that hides one.
// 93.184.214.7 and 2606:2800:21e::7 are public, and the host's.
var specials = []string{
	"127.0.0.1", "127.1.2.3", "0.0.0.1", "10.0.0.1", "10.77.0.1", "10.77.0.2", "10.77.0.3", "172.16.0.1", "192.168.1.1", "192.168.127.1",
	"100.64.0.1", "100.100.100.200", "169.254.1.1", "169.254.169.254", "169.254.170.2", "168.63.129.16", "192.0.0.192",
	"192.0.2.1", "192.88.99.1", "198.18.0.9", "198.51.100.1", "203.0.113.1", "240.0.0.1", "93.184.214.7",
	"fd77::1", "fd77::2", "fd00:ec2::254", "fe80::1", "fec0::1", "2606:2800:21e::7", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe",
	"64:ff9b:1::7f00:1", "2002:7f00:1::", "2002:a00:1::1", "2001:0:a00:1::1", "::127.0.0.1", "::ffff:0:127.0.0.1", "100::1", "2001:db8::1", "3fff::1", "fd6d:7362::1",
}

func TestI5_VMAttacksFromAnOpenSandbox(t *testing.T) {
	i := newIsland(t)
	i.zone["turns.example"] = []string{public, "127.0.0.1"}
	i.zone["inward.example"] = []string{"127.0.0.1"}
	i.zone["host.example"] = []string{"93.184.214.7"}
	a := i.guest(openPolicy)
	a.sh("true")
	i.seen()
	guest := processesBelow(a.Process.Pid)
	control := attack{
		name: "PublicAddressIsReached", may: []string{public + ":80"},
		script: `wget -q -O - http://` + public + `/control`,
		outside: func(t *testing.T, s *sight, out string) {
			if len(s.requests) != 1 || s.requests[0].at != public+":80" {
				t.Fatalf("no attack below shows anything: %d requests arrived, the guest says %s", len(s.requests), out)
			}
		},
	}
	i.run(a, append([]attack{control}, addressAttacks(i)...))
	i.run(a, append(linkAttacks(), control))
	i.run(a, floods())
	if left := processesBelow(a.Process.Pid); !slices.Equal(left, guest) {
		t.Errorf("processes %v, want %v: one has not lived through it", left, guest)
	}
	for _, p := range guest {
		if strings.Contains(p.name, "qemu") {
			continue
		}
		if peak := statusKiB(t, p.pid, "VmHWM"); peak == 0 || peak > 160<<10 {
			t.Errorf("%v had %d KiB resident at its worst, want at most 160 MiB", p, peak)
		} else {
			t.Logf("%v had %d KiB resident at its worst", p, peak)
		}
	}
	a.leave()
	s := i.seen()
	if bad := i.trespass(&s); len(bad) > 0 {
		t.Errorf("seen while it ended: %v", bad)
	}
}

func addressAttacks(i *island) []attack {
	return []attack{
		{name: "I5_SpecialAddresses", script: connect + `echo 1 > /proc/sys/net/ipv4/conf/all/route_localnet
			ip addr del 127.0.0.1/8 dev lo; ip route add 127.0.0.0/8 via 192.168.127.1
			ip -6 route add ::/0 via fd6d:7362::1 dev eth0 2>/dev/null
			connect ` + strings.Join(specials, " ") + `
			ip route del 127.0.0.0/8; ip addr add 127.0.0.1/8 dev lo`},
		{name: "I5_OtherPortsOfTheHost", script: `for a in 10.77.0.2 93.184.214.7 169.254.169.254; do for p in 22 53 443 3128; do
			nc -w 5 $a $p </dev/null | grep . && echo "REACHED $a:$p"; done; done; true`},
		// busybox' client reads such forms as addresses, Go's as names. The first two requests show that both get out.
		{name: "I5_LiteralsOfOtherForms", may: []string{public + ":80"}, script: `fetch() { wget -q -T 5 -O - http://$1/ 2>/dev/null || timeout 5 busybox wftp -q -O - http://$1/ 2>/dev/null; }
			wget -q -T 5 -O - http://` + public + `/; busybox wftp -q -O - http://` + publicHex + `/
			for u in 0x7f000001 2130706433 0177.0.0.1 127.1 0xa9fea9fe 2852039166 [::ffff:7f00:1] [::ffff:169.254.169.254] localhost. metadata.google.internal; do
			fetch $u && echo "REACHED $u"; done; true`,
			outside: func(t *testing.T, s *sight, out string) {
				if len(s.requests) != 2 {
					t.Errorf("%d requests arrived, want the two for %s: %s", len(s.requests), public, out)
				}
			}},
		{name: "I5_NamesThatLeadInward", script: `for n in inward.example host.example metadata.google.internal; do
			msb-tour get http://$n/ && echo "REACHED $n"; done; true`},
		{name: "I5_ANameThatTurnsInward", may: []string{public + ":80"},
			script: `msb-tour get http://turns.example/first >/dev/null && echo first; for n in 1 2 3; do msb-tour get http://turns.example/second; done; true`,
			outside: func(t *testing.T, s *sight, out string) {
				if !strings.Contains(out, "first") {
					t.Errorf("the name did not lead anywhere at first: %s", out)
				}
			}},
		{name: "I5_AnAddressThatTheHostGetsMeanwhile", before: func() { i.addToHost("45.33.32.200/32") },
			script: `sleep 1; ` + connect + `connect 45.33.32.200`},
		{name: "I5_ARedirectToMetadata", may: []string{public + ":80"}, script: `msb-tour get http://` + public + `/redirect; true`,
			outside: func(t *testing.T, s *sight, out string) {
				if len(s.requests) != 1 || s.requests[0].at != public+":80" {
					t.Errorf("requests %+v arrived, want the one that is redirected", s.requests)
				}
			}},
		{name: "I5_TheExplicitProxyIsNoWayIn", script: `for to in 127.0.0.1:80 10.77.0.2:80 169.254.169.254:80 [::1]:80 0x7f000001:80; do
			printf "CONNECT $to HTTP/1.1\r\nHost: $to\r\n\r\n" | nc -w 5 192.168.127.1 3128 | grep -q ' 200 ' && echo "REACHED $to"
			printf "GET http://$to/ HTTP/1.1\r\nHost: $to\r\n\r\n" | nc -w 5 192.168.127.1 3128 | grep served && echo "REACHED $to"; done; true`},
		{name: "I5_DatagramsAndPings", script: `for a in 10.77.0.2 93.184.214.7 169.254.169.254 10.0.0.1 224.0.0.251 192.168.127.255; do
			tftp -g -r x $a 80 & sleep 0.2; kill $! 2>/dev/null; traceroute -n -m 1 -q 1 -w 1 $a; done
			for a in 10.77.0.2 93.184.214.7 169.254.169.254 10.0.0.1 fd77::2 2606:2800:21e::7; do ping -c 1 -W 1 $a | grep 'bytes from' && echo "REACHED $a"; done
			ping -c 1 -W 1 224.0.0.251; ping6 -c 1 -W 1 ff02::1%eth0; true`},
	}
}

// again gives the guest the addresses that it has by right.
const again = `
ip addr flush dev eth0; echo 0 > /proc/sys/net/ipv6/conf/eth0/accept_dad
ip addr add 192.168.127.2/24 dev eth0; ip -6 addr add fd6d:7362::2/64 dev eth0
ip route replace default via 192.168.127.1; ip -6 route replace default via fd6d:7362::1 dev eth0; true`

func linkAttacks() []attack {
	return []attack{
		{name: "I4_AnotherSourceAddress", script: connect + `for s in 10.77.0.2 93.184.214.7 8.8.8.8 192.168.127.3 192.168.127.1; do
			ip addr add $s/32 dev eth0; ip route replace ` + public + ` via 192.168.127.1 src $s
			nc -w 1 ` + public + ` 80 </dev/null && echo "REACHED as $s"
			ping -c 1 -W 1 ` + public + ` | grep 'bytes from' && echo "REACHED as $s"; ip addr del $s/32 dev eth0; done
			ip route del ` + public + again},
		{name: "I4_AnotherSourceAddressOfIPv6", script: `echo 0 > /proc/sys/net/ipv6/conf/eth0/accept_dad; ip -6 addr add fd6d:7362::3/64 dev eth0; ip -6 addr add 2606:2800:21e::7/128 dev eth0; ip -6 route replace 2606:2800:21f::/48 via fd6d:7362::1 dev eth0
			for s in fd6d:7362::3 2606:2800:21e::7; do ping6 -c 1 -W 1 -I $s 2606:2800:21f::1 | grep 'bytes from' && echo "REACHED as $s"; done` + again},
		{name: "I4_AnotherMAC", script: connect + `mac=$(cat /sys/class/net/eth0/address); ip link set eth0 down; ip link set eth0 address 02:00:00:00:00:99; ip link set eth0 up` + again + `
			nc -w 2 ` + public + ` 80 </dev/null && echo REACHED; ping -c 1 -W 1 ` + public + ` | grep 'bytes from' && echo REACHED
			ip link set eth0 down; ip link set eth0 address $mac; ip link set eth0 up` + again},
		{name: "I4_ARPForOthers", script: `ip addr add 192.168.127.1/32 dev eth0; arping -q -U -c 2 -w 2 -s 192.168.127.1 192.168.127.1; arping -q -A -c 2 -w 2 192.168.127.2
			for a in 192.168.127.77 10.77.0.2 ` + public + `; do arping -c 1 -w 1 $a | grep -i reply && echo "REACHED $a"; done; ip addr del 192.168.127.1/32 dev eth0`},
		{name: "I4_VLANs", script: `ip link add link eth0 name v7 type vlan id 7; ip addr add 10.77.0.9/24 dev v7; ip link set v7 up
			for a in 10.77.0.1 10.77.0.2; do nc -w 1 $a 80 </dev/null && echo "REACHED $a"; done; ip link del v7`},
		{name: "I3_FragmentsAndHugePackets", script: `ping -c 2 -W 1 -s 65000 192.168.127.1 | tail -2; ip link set eth0 mtu 576
			ping -c 2 -W 1 -s 20000 192.168.127.1 | tail -2; ping -c 1 -W 1 -s 20000 10.77.0.2 | grep 'bytes from' && echo REACHED; ip link set eth0 mtu 65520; true`},
	}
}

// burst is how many connections the flood tries at once, far above the policy's bound.
const burst = 200

func floods() []attack {
	return []attack{
		{name: "I11_ConnectionsAboveTheBound", may: []string{public + ":80"},
			script: `n=0; while [ $n -lt ` + strconv.Itoa(burst) + ` ]; do sleep 3 | nc -w 3 ` + public + ` 80 >/dev/null 2>&1 & n=$((n+1)); done; wait; true`,
			outside: func(t *testing.T, s *sight, _ string) {
				if s.most == 0 || s.most > 32 {
					t.Errorf("%d connections were open at once at the server, want some and at most the policy's 32", s.most)
				}
			}},
		{name: "I11_QuestionsWithoutEnd", script: `n=0; while [ $n -lt 100 ]; do nslookup n$n.flood.example >/dev/null 2>&1 & n=$((n+1)); done; wait; true`},
		{name: "I2_NoDeviceLeadsToTheHost", script: `ls /dev; ls /sys/class/net; ls -d /dev/vsock /dev/vhost* /dev/mem /dev/port 2>/dev/null | sed 's/^/REACHED /'
			cat /proc/mounts | grep -i -e 9p -e virtiofs -e nfs | sed 's/^/REACHED /'
			cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline /proc/cmdline 2>/dev/null | tr '\0' '\n' | grep -e '` + noEcho(asMSB) + `' -e '` + noEcho(scratch) + `' | sed 's/^/REACHED /'
			for d in /sys/block/vd*; do n=$(tr : ' ' < $d/dev); mknod /tmp/disk b $n
				tr -s '\0' '\n' < /tmp/disk | grep -F -e '` + twoWords(scratch) + `' -e '` + twoWords(imagesOwn) + `' | sed 's/.*` + noEcho(imagesOwn) + `.*/its image/; t; s/^/REACHED the host: /'
				rm /tmp/disk; done; true`,
			outside: func(t *testing.T, _ *sight, out string) {
				if !strings.Contains(out, "its image") {
					t.Errorf("it can't read its own disks, so that it finds nothing of the host's on them: %s", out)
				}
			}},
	}
}

// imagesOwn is text that the disk of the built-in image has.
const imagesOwn = "root:x:0:0:"

// noEcho is a pattern for text that does not match itself.
func noEcho(text string) string { return text[:len(text)-1] + "[" + text[len(text)-1:] + "]" }

// twoWords is what a shell takes for text, which it does not match itself.
func twoWords(text string) string { return text[:1] + "''" + text[1:] }

// statusKiB is a line of a process's status, in KiB.
func statusKiB(t *testing.T, pid int, key string) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, key+":"); ok {
			n, _ := strconv.Atoi(strings.Fields(rest)[0])
			return n
		}
	}
	return 0
}

// addToHost gives the host another address.
func (i *island) addToHost(addr string) {
	i.t.Helper()
	err := i.Host.Do(func() error {
		link, err := netlink.LinkByName(netstacktest.Uplink)
		if err != nil {
			return err
		}
		a, err := netlink.ParseAddr(addr)
		if err != nil {
			return err
		}
		return netlink.AddrAdd(link, a)
	})
	if err != nil {
		i.t.Fatal(err)
	}
}

func TestI2_VMNoNetworkStopsEveryAttack(t *testing.T) {
	i := newIsland(t)
	a := i.guest("", "--no-net")
	i.run(a, []attack{
		{name: "I2_NothingIsReached", script: connect + `connect 127.0.0.2 10.77.0.2 10.77.0.1 ` + public + ` fd77::2; nslookup turns.example 10.77.0.2; ls /sys/class/net | grep eth && echo REACHED; true`},
		{name: "I2_NoRouteThroughTheDummyDevice", script: connect + `ip link set dummy0 up; ip addr add 10.77.0.9/24 dev dummy0; ip route add default dev dummy0; ping -c 1 -W 1 10.77.0.2 | grep 'bytes from' && echo REACHED; nc -w 1 10.77.0.2 80 </dev/null && echo REACHED; true`},
	})
	a.leave()
	if s := i.seen(); len(s.packets) != 0 || len(s.baits) != 0 {
		t.Errorf("seen while it ended: %v %v", s.packets, s.baits)
	}
}
