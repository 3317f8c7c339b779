//go:build vmtest

package sandbox_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/msb-project/msb/sandbox"
)

// identities are what no two guests may have in common, by a command that prints it. internal/vm/qemu shows what repeats in copies of
// one saved machine before their handshake.
var identities = map[string]string{
	"boot id":            "cat /proc/sys/kernel/random/boot_id",
	"random device":      "head -c 16 /dev/urandom | od -An -tx1",
	"random UUID":        "cat /proc/sys/kernel/random/uuid",
	"host name":          "hostname",
	"addresses of cards": "cat /sys/class/net/[!l]*/address",
	"link-local address": "grep -v ' lo$' /proc/net/if_inet6 | grep ^fe80",
	"where programs lie": "head -1 /proc/self/maps; tail -2 /proc/self/maps | head -1",
	"start of a process": "od -An -tx1 /proc/self/auxv | head -20; od -An -tx1 -v /proc/self/auxv | tail -8",
	"authority":          "tail -30 $SSL_CERT_FILE",
	"ports of clients":   portsOfClients,
	"sandbox":            "echo $MSB_SANDBOX",
}

// portsOfClients prints the ports that the kernel chose for four TCP connections, which depend on a secret that it draws
// at its first socket: a saved machine must not have had one.
const portsOfClients = `for i in 1 2 3 4; do nc -l -p 777$i -e sleep 60 & (until nc 127.0.0.1 777$i -e sleep 60; do :; done) & done >/dev/null 2>&1
until [ "$(cat /proc/net/tcp /proc/net/tcp6 | grep -c ' 01 ')" -ge 8 ]; do :; done
cat /proc/net/tcp /proc/net/tcp6 | awk '$4 == "01" { print $2, $3 }' | sort`

// guestBooted says that a guest is no copy.
const guestBooted = "the guest was booted"

// TestI18_VMCopiesShareNoIdentity starts two sandboxes from one saved machine, and compares.
func TestI18_VMCopiesShareNoIdentity(t *testing.T) {
	seen := make(map[string]string)
	for range 2 {
		sb := start(t, nil)
		if !sb.Info().Restored {
			t.Fatal(guestBooted)
		}
		addressesAreTheHosts(t, sb)
		for what, command := range identities {
			got, st, err := sh(t, sb, command)
			if err != nil || st.Code != 0 || strings.TrimSpace(got) == "" {
				t.Fatalf("%s: %q, %+v, %v", what, got, st, err)
			}
			if what == "addresses of cards" { // each of them
				for i, address := range strings.Fields(got) {
					compare(t, seen, what+strconv.Itoa(i), address)
				}
				continue
			}
			compare(t, seen, what, got)
		}
		got, _, _ := sh(t, sb, "date +%s")
		if secs, err := strconv.ParseInt(strings.TrimSpace(got), 10, 64); err != nil || time.Since(time.Unix(secs, 0)).Abs() > 10*time.Second {
			t.Errorf("its clock says %q", got)
		}
		clockKeepsTime(t, sb)
		if got, _, _ := sh(t, sb, "cat /etc/machine-id 2>/dev/null"); got != "" {
			compare(t, seen, "machine id", got)
		}
		if err := sb.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// clockKeepsTime compares the guest's clock with this machine's: from where the copied machine was saved it goes on at the
// right rate.
func clockKeepsTime(t *testing.T, sb *sandbox.Sandbox) {
	t.Helper()
	start := time.Now()
	got, _, err := sh(t, sb, "cat /proc/uptime; sleep 1; cat /proc/uptime; cat /sys/devices/system/clocksource/clocksource0/current_clocksource")
	took := time.Since(start)
	f := strings.Fields(got)
	if err != nil || len(f) != 5 {
		t.Fatalf("%q, %v", got, err)
	}
	before, errBefore := strconv.ParseFloat(f[0], 64)
	after, errAfter := strconv.ParseFloat(f[2], 64)
	const tick = 0.02 // how exact these are, in seconds
	if passed := after - before; errBefore != nil || errAfter != nil || passed < 1-tick || passed > took.Seconds()+tick {
		t.Errorf("%.2f s passed in the guest while it slept for 1 s, and at most %s here: %q", passed, took, got)
	}
	if f[4] != "kvm-clock" && !strings.HasPrefix(f[4], "tsc") {
		t.Errorf("the guest reads the time from %s", f[4])
	}
}

func compare(t *testing.T, seen map[string]string, what, got string) {
	t.Helper()
	if seen[what] == got {
		t.Errorf("two guests have the same %s:\n%s", what, got)
	}
	seen[what] = got
}

// TestVMColdGuestsAreBooted asks for a boot, and has the guest's own words of it.
func TestVMColdGuestsAreBooted(t *testing.T) {
	sb := start(t, func(c *sandbox.Config) { c.Cold = true })
	addressesAreTheHosts(t, sb)
	if got, _, err := sh(t, sb, "grep -q 'QEMU TCG CPU' /proc/cpuinfo && grep cx16 /proc/cpuinfo"); got != "" {
		t.Errorf("an emulated guest's kernel has an instruction whose flags QEMU gets wrong: %q, %v", got, err)
	}
	if got, _, err := sh(t, sb, "uname -s"); err != nil || strings.TrimSpace(got) != "Linux" || sb.Info().Restored {
		t.Errorf("%q, %v, restored %v", got, err, sb.Info().Restored)
	}
}

// addressesAreTheHosts shows that the guest's card takes none from a router, and uses those it has at once.
func addressesAreTheHosts(t *testing.T, sb *sandbox.Sandbox) {
	t.Helper()
	got, _, err := sh(t, sb, "cd /proc/sys/net/ipv6/conf/eth0 && cat accept_ra autoconf accept_dad dad_transmits; cat ../default/accept_ra")
	if err != nil || strings.Join(strings.Fields(got), " ") != "0 0 0 0 1" {
		t.Errorf("accept_ra, autoconf, accept_dad and dad_transmits of eth0, and accept_ra of other devices: %q, %v", got, err)
	}
}
