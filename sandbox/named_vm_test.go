//go:build vmtest

package sandbox_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox"
)

// namedHome is a state directory of this test's own, beside the shared caches.
func namedHome(t *testing.T) *sandbox.Home {
	t.Helper()
	h, err := sandbox.OpenHome(home(t))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// create makes a sandbox of the test's name, and removes it at the end.
func create(t *testing.T, name, policy string) *sandbox.Home {
	t.Helper()
	h := namedHome(t)
	p, err := policies.Parse("t.toml", []byte("version = 1\n"+policy), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := sandbox.Create(t.Context(), sandbox.Config{Name: name, Home: h.Dir(), Backend: "qemu", Disk: 1 << 30, Policy: p}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.Background()
		if err := h.Stop(ctx, name); err != nil && !errors.Is(err, sandbox.ErrNotRunning) {
			t.Error(err)
		}
		if err := h.Remove(ctx, name); err != nil {
			t.Error(err)
		}
	})
	return h
}

func startNamed(t *testing.T, h *sandbox.Home, name string) *sandbox.Sandbox {
	t.Helper()
	sb, err := sandbox.StartNamed(t.Context(), name, sandbox.StartOptions{Home: h.Dir()})
	if err != nil {
		t.Fatal(err)
	}
	return sb
}

// said is what a shell line prints; the test fails where it fails.
func said(t *testing.T, sb *sandbox.Sandbox, line string) string {
	t.Helper()
	out, st, err := sh(t, sb, line)
	if err != nil || st.Code != 0 {
		t.Fatalf("%s: %+v, %v\n%s", line, st, err, out)
	}
	return out
}

const namedSecret = `
[[egress.allow]]
hosts = ["echo.msb.internal"]
protocol = "https"
[hosts]
"echo.msb.internal" = "builtin:echo"
[secrets.TOKEN]
from = "file:FILE"
hosts = ["echo.msb.internal"]
in = ["header:Authorization"]
`

// TestVMNamedSandboxesSurviveRestarts: its disk, its placeholders, and its authority, with which a session
// through the proxy works; and it outlives the sessions with it.
func TestVMNamedSandboxesSurviveRestarts(t *testing.T) {
	const name = "keeps"
	const value = "a-value-of-a-named-sandbox"
	file := filepath.Join(t.TempDir(), "value")
	if err := os.WriteFile(file, []byte(value), 0o600); err != nil {
		t.Fatal(err)
	}
	h := create(t, name, strings.Replace(namedSecret, "FILE", file, 1))
	sb := startNamed(t, h, name)
	first := said(t, sb, `echo kept > /root/file; echo $TOKEN > /root/token; echo $TOKEN; hostname; cat /sys/class/net/eth0/mtu`)
	if err := sb.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := h.Connect(t.Context(), name)
	if err != nil {
		t.Fatalf("it did not outlive its first session: %v", err)
	}
	authority, err := os.ReadFile(filepath.Join(h.Dir(), "sandboxes", name, "ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	sb = startNamed(t, h, name)
	defer func() { _ = sb.Close() }()
	if second := said(t, sb, `cat /root/file >&2; echo $TOKEN; hostname; cat /sys/class/net/eth0/mtu`); !strings.HasSuffix(second, first) || !strings.Contains(second, "kept\n") {
		t.Errorf("at the first start %q, at the second %q", first, second)
	}
	said(t, sb, `msb-tour get -H "Authorization: Bearer $(cat /root/token)" https://echo.msb.internal/`)
	if now, err := os.ReadFile(filepath.Join(h.Dir(), "sandboxes", name, "ca.pem")); err != nil || !bytes.Equal(now, authority) {
		t.Errorf("its authority is another one now (%v)", err)
	}
	if _, err := sandbox.StartNamed(t.Context(), name, sandbox.StartOptions{Home: h.Dir()}); !errors.Is(err, sandbox.ErrRunning) {
		t.Errorf("started twice: %v", err)
	}
	isInNoFile(t, filepath.Join(h.Dir(), "sandboxes", name), value)
}

// TestVMNamedSandboxesEndsAreReported: one that ended by itself says why to who was there and to who comes later.
func TestVMNamedSandboxesEndsAreReported(t *testing.T) {
	h := create(t, "ends", "")
	theEndIsTold(t, h, "ends", "reboot -f", "left its machine")
	theEndIsTold(t, h, "ends", "poweroff -f", "halted")
}

func theEndIsTold(t *testing.T, h *sandbox.Home, name, end, why string) {
	t.Helper()
	sb := startNamed(t, h, name)
	other, err := h.Connect(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := sh(t, sb, end+"; sleep 60"); sandbox.KindOf(err) != sandbox.KindAgent || !strings.Contains(err.Error(), why) {
		t.Errorf("who was there is told %v", err)
	}
	for _, s := range []*sandbox.Sandbox{sb, other} {
		select {
		case <-s.Done():
			if err := s.Err(); sandbox.KindOf(err) != sandbox.KindAgent || !strings.Contains(err.Error(), why) {
				t.Errorf("kind %s, %v", sandbox.KindOf(err), err)
			}
		case <-time.After(time.Minute):
			t.Error("the session did not end")
		}
		_ = s.Close()
	}
	if st, err := h.Inspect(name); err != nil || st.Running || st.End == nil || st.End.Kind != sandbox.KindAgent {
		t.Errorf("%+v, %v", st, err)
	}
}

// TestVMStoppedStartsSaySo, and that the guest it had begun is not to blame.
func TestVMStoppedStartsSaySo(t *testing.T) {
	const name = "hurried"
	h := create(t, name, "")
	started := make(chan error, 1)
	go func() {
		_, err := sandbox.StartNamed(context.Background(), name, sandbox.StartOptions{Home: h.Dir()})
		started <- err
	}()
	for {
		if err := h.Stop(t.Context(), name); err == nil {
			break
		} else if !errors.Is(err, sandbox.ErrNotRunning) {
			t.Fatal(err)
		}
	}
	if err := <-started; sandbox.KindOf(err) != sandbox.KindSandbox || !strings.Contains(err.Error(), "stopped before it was ready") {
		t.Errorf("kind %s, %v", sandbox.KindOf(err), err)
	}
}

// TestI13_VMRandomKillsLoseNothing kills the supervisor of a named sandbox at any moment of its start and
// work, over and over. What was synced is there afterwards, no process is, and the next start works.
func TestI13_VMRandomKillsLoseNothing(t *testing.T) {
	const (
		name  = "killed"
		kills = 5
		most  = 9 * time.Second // a start under emulation, and some work
	)
	h := create(t, name, "")
	sb := startNamed(t, h, name)
	said(t, sb, "echo 0 > /root/n; sync")
	if err := sb.Close(); err != nil {
		t.Fatal(err)
	}
	before := descendants(t, os.Getpid())
	for i := range kills {
		if i > 0 {
			moment := time.Duration(rand.Int64N(int64(most)))
			t.Logf("killed after %s", moment)
			started := make(chan error, 1)
			go func() {
				sb, err := sandbox.StartNamed(context.Background(), name, sandbox.StartOptions{Home: h.Dir()})
				if err == nil {
					_, err = sb.Exec(context.Background(), sandbox.ExecOptions{Argv: []string{"sh", "-c", "while :; do echo x >> /root/log; done"}})
					_ = sb.Close()
				}
				started <- err
			}()
			time.Sleep(moment)
			before = killSupervisor(t, started)
		} else if err := syscall.Kill(before[0], syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		for _, pid := range before {
			gone(t, pid)
		}
	}
	sb = startNamed(t, h, name)
	defer func() { _ = sb.Close() }()
	if out := said(t, sb, "cat /root/n"); out != "0\n" {
		t.Errorf("what was synced is %q", out)
	}
	if err := h.Stop(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	if err := sb.Close(); err != nil {
		t.Error(err)
	}
	entries, err := os.ReadDir(filepath.Join(h.Dir(), "sandboxes", name))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		switch e.Name() {
		case "sandbox.json", "upper.ext4", "lock", "ca.pem", "end.json", "audit.jsonl", "console.log", "supervisor.log":
		default:
			t.Errorf("left: %s", e.Name())
		}
	}
}

// killSupervisor kills the supervisors that are this process's children, as soon as there is one, and returns who was
// there. A start that ended by itself needs no kill; without either, the loop in the guest would never end.
func killSupervisor(t *testing.T, started <-chan error) (before []int) {
	t.Helper()
	for killed := false; ; time.Sleep(10 * time.Millisecond) {
		before = descendants(t, os.Getpid())
		for _, pid := range before {
			killed = ppidIs(t, pid, os.Getpid()) && syscall.Kill(pid, syscall.SIGKILL) == nil || killed
		}
		if killed {
			<-started
			return before
		}
		select {
		case err := <-started:
			t.Logf("the start ended by itself: %v", err)
			return before
		default:
		}
	}
}

// ppidIs reports whether pid is a child of parent.
func ppidIs(t *testing.T, pid, parent int) bool {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return false
	}
	return strings.Fields(string(b[bytes.LastIndexByte(b, ')')+2:]))[1] == strconv.Itoa(parent)
}
