//go:build vmtest

package sandbox_test

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/msb-project/msb/sandbox"
)

// counter counts in memory alone, and on the disk, whose pages are not written back at once. The other one is in the middle
// of a connection.
const counter = `i=0; while :; do i=$((i+1)); echo $i >/dev/shm/new; mv /dev/shm/new /dev/shm/count; echo $i >>/root/count; sleep 0.05; done`

const memoryPolicy = `
[[egress.allow]]
hosts = ["echo.msb.internal"]
protocol = "https"
[hosts]
"echo.msb.internal" = "builtin:echo"
`

// TestVMMemoryGoesOn saves a guest that runs, from a copy of a saved machine and from a boot, and lets it go on: with its
// processes and what they have in memory, in the same boot, with the clock of now, its network and its disk. What it draws
// at random differs each time. The next start is a boot.
func TestVMMemoryGoesOn(t *testing.T) {
	for name, cold := range map[string]bool{"goeson": false, "goesoncold": true} {
		h := create(t, name, memoryPolicy)
		if cold {
			recreateCold(t, h, name)
		}
		sb := startNamed(t, h, name)
		if sb.Info().Restored == cold || sb.Info().Resumed {
			t.Errorf("%+v", sb.Info())
		}
		if _, err := sb.StartJob(t.Context(), "count", sandbox.ExecOptions{Argv: []string{"/bin/sh", "-c", counter}}); err != nil {
			t.Fatal(err)
		}
		boot := said(t, sb, `until [ "$(cat /dev/shm/count 2>/dev/null || echo 0)" -gt 5 ]; do sleep 0.05; done; cat /proc/sys/kernel/random/boot_id`)
		card := said(t, sb, "cat /sys/class/net/eth0/address")
		began := time.Now()
		s, err := h.Snapshots().Create(t.Context(), name, sandbox.SnapshotOptions{Memory: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: saved in %s, %d MiB of memory", name, time.Since(began).Round(time.Millisecond), s.Memory>>20)
		saved := count(t, sb)
		said(t, sb, `n=$(cat /dev/shm/count); until [ "$(cat /dev/shm/count)" -gt $((n+5)) ]; do sleep 0.05; done`)
		clockIsRight(t, sb)
		if err := sb.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		drawn := map[string]bool{}
		for range 2 {
			if err := h.Snapshots().Restore(t.Context(), s.Name, ""); err != nil {
				t.Fatal(err)
			}
			began = time.Now()
			sb = startNamed(t, h, name)
			t.Logf("%s: goes on after %s", name, time.Since(began).Round(time.Millisecond))
			clockIsRight(t, sb)
			drawn[said(t, sb, "head -c 16 /dev/urandom | od -An -tx1")] = true
			if n := count(t, sb); n > saved+100 || n < saved-10 { // it counted on while the snapshot was taken
				t.Errorf("the counter is at %d, and was at about %d when it was saved", n, saved)
			}
			if now := said(t, sb, "cat /proc/sys/kernel/random/boot_id"); now != boot || !sb.Info().Resumed {
				t.Errorf("it is boot %q, want %q; %+v", now, boot, sb.Info())
			}
			if now := said(t, sb, "cat /sys/class/net/eth0/address"); now != card {
				t.Errorf("its card is %q, want %q", now, card)
			}
			said(t, sb, `n=$(cat /dev/shm/count); until [ "$(cat /dev/shm/count)" -gt $((n+5)) ]; do sleep 0.05; done`)
			said(t, sb, "msb-tour get https://echo.msb.internal/")
			if jobs, err := h.Jobs(name); err != nil || len(jobs) != 0 {
				t.Errorf("jobs %+v, %v", jobs, err)
			}
			if err := sb.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
			disk := filepath.Join(h.Dir(), "sandboxes", name, "upper.ext4")
			if out, err := exec.CommandContext(t.Context(), "/sbin/e2fsck", "-fn", disk).CombinedOutput(); err != nil {
				t.Errorf("its disk: %v\n%s", err, out)
			}
		}
		if len(drawn) != 2 {
			t.Errorf("it drew %v", drawn)
		}
		sb = startNamed(t, h, name)
		if now := said(t, sb, "cat /proc/sys/kernel/random/boot_id; ls /dev/shm"); strings.HasPrefix(now, boot) || strings.Contains(now, "count") || sb.Info().Resumed {
			t.Errorf("the second start goes on, too: %q", now)
		}
		said(t, sb, `i=0; while read n; do i=$((i+1)); [ $n = $i ] || { echo $n for $i; exit 1; }; done </root/count`) // of one instant
		if err := sb.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// recreateCold makes the sandbox one whose guest boots.
func recreateCold(t *testing.T, h *sandbox.Home, name string) {
	t.Helper()
	p, err := h.Policy(name)
	if err == nil {
		err = h.Remove(t.Context(), name)
	}
	if err == nil {
		err = sandbox.Create(t.Context(), sandbox.Config{Name: name, Home: h.Dir(), Backend: "qemu", Disk: 1 << 30, Policy: p, Cold: true, CPUs: 2})
	}
	if err != nil {
		t.Fatal(err)
	}
}

func count(t *testing.T, sb *sandbox.Sandbox) int {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimSpace(said(t, sb, "cat /dev/shm/count")))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func clockIsRight(t *testing.T, sb *sandbox.Sandbox) {
	t.Helper()
	secs, err := strconv.ParseInt(strings.TrimSpace(said(t, sb, "date +%s")), 10, 64)
	if off := time.Since(time.Unix(secs, 0)); err != nil || off.Abs() > 3*time.Second {
		t.Errorf("its clock is %s off (%v)", off, err)
	}
}

// TestVMConnectionsOfSavedGuestsEnd: the guest's side of a connection that was open when the guest was saved gets a reset at
// what it sends next. One that waits for the other side waits on.
func TestVMConnectionsOfSavedGuestsEnd(t *testing.T) {
	const name = "connected"
	h := create(t, name, memoryPolicy)
	sb := startNamed(t, h, name)
	const hold = `trap '' PIPE; until [ -e /dev/shm/go ]; do sleep 0.05; done; while echo hello; do sleep 0.05; done; echo ended >/dev/shm/ended`
	if _, err := sb.StartJob(t.Context(), "nc", sandbox.ExecOptions{Argv: []string{"nc", "echo.msb.internal", "443", "-e", "/bin/sh", "-c", hold}}); err != nil {
		t.Fatal(err)
	}
	said(t, sb, `for i in $(seq 200); do cat /proc/net/tcp /proc/net/tcp6 | grep -q ' 01 ' && exit; sleep 0.05; done; cat /proc/net/tcp; ps; exit 1`)
	s, err := h.Snapshots().Create(t.Context(), name, sandbox.SnapshotOptions{Memory: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := sb.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := h.Snapshots().Restore(t.Context(), s.Name, ""); err != nil {
		t.Fatal(err)
	}
	sb = startNamed(t, h, name)
	if out := said(t, sb, `sleep 1; cat /proc/net/tcp /proc/net/tcp6 | grep -c ' 01 '`); strings.TrimSpace(out) != "1" {
		t.Errorf("before it sends: %q", out)
	}
	said(t, sb, `touch /dev/shm/go; for i in $(seq 100); do [ -e /dev/shm/ended ] && exit; sleep 0.1; done; cat /proc/net/tcp; ps; exit 1`)
	if err := sb.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestVMForeignMemoryIsRefused: a machine that can't load the memory says so, and nothing has run of it.
func TestVMForeignMemoryIsRefused(t *testing.T) {
	const name = "foreign"
	h := create(t, name, "")
	sb := startNamed(t, h, name)
	boot := said(t, sb, "cat /proc/sys/kernel/random/boot_id")
	s, err := h.Snapshots().Create(t.Context(), name, sandbox.SnapshotOptions{Memory: true})
	if err == nil {
		err = sb.Stop(t.Context())
	}
	if err == nil {
		err = h.Snapshots().Restore(t.Context(), s.Name, "")
	}
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		change sandbox.Changes
		want   string
	}{
		"memory":     {sandbox.Changes{Memory: new(int64(768 << 20))}, "the memory was 512 MiB, and is 768 MiB here"},
		"processors": {sandbox.Changes{CPUs: new(2)}, "the number of processors was 1, and is 2 here"},
	} {
		if err := h.Update(t.Context(), name, c.change); err != nil {
			t.Fatal(err)
		}
		_, err := sandbox.StartNamed(t.Context(), name, sandbox.StartOptions{Home: h.Dir()})
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "--no-memory "+s.Name+" "+name) {
			t.Errorf("with other %s: %v", what, err)
		}
		if err := h.Update(t.Context(), name, sandbox.Changes{Memory: new(int64(512 << 20)), CPUs: new(1)}); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	sb, err = sandbox.StartNamed(t.Context(), name, sandbox.StartOptions{Home: h.Dir(), Notice: func(s string) { out.WriteString(s) }})
	if err != nil {
		t.Fatal(err)
	}
	if got := said(t, sb, "cat /proc/sys/kernel/random/boot_id"); got != boot || !strings.Contains(out.String(), "from the memory that a snapshot saved") {
		t.Errorf("boot %q, want %q; it said %q", got, boot, out.String())
	}
	if err := sb.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
}
