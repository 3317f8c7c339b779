//go:build vmtest

package sandbox_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/internal/cachefile"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox"
)

// home is a state directory that shares its caches with every other test: only run directories are compared.
func home(t *testing.T) string {
	t.Helper()
	return filepath.Join(scratch, "home")
}

func start(t *testing.T, change func(*sandbox.Config)) *sandbox.Sandbox {
	t.Helper()
	cfg := sandbox.Config{Home: home(t), Backend: "qemu"}
	if change != nil {
		change(&cfg)
	}
	sb, err := sandbox.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sb.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return sb
}

// sh runs a shell line and returns its output and status.
func sh(t *testing.T, sb *sandbox.Sandbox, line string) (string, sandbox.ExitStatus, error) {
	t.Helper()
	var out bytes.Buffer
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	st, err := sb.Exec(ctx, sandbox.ExecOptions{Argv: []string{"/bin/sh", "-c", line}, Stdout: &out, Stderr: &out})
	return out.String(), st, err
}

func runDirectories(t *testing.T, home string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(home, "run"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// descendants returns the processes below pid.
func descendants(t *testing.T, pid int) []int {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	children := map[int][]int{}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		rest := string(b[bytes.LastIndexByte(b, ')')+2:])
		ppid, _ := strconv.Atoi(strings.Fields(rest)[1])
		id, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		children[ppid] = append(children[ppid], id)
	}
	var all []int
	for todo := []int{pid}; len(todo) > 0; todo = todo[1:] {
		all = append(all, children[todo[0]]...)
		todo = append(todo, children[todo[0]]...)
	}
	return all
}

// gone waits until a process is no more than a zombie.
func gone(t *testing.T, pid int) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for time.Now().Before(deadline) {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.HasPrefix(string(b[bytes.LastIndexByte(b, ')')+2:]), "Z") {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Errorf("process %d is still there", pid)
}

func TestVMRunsACommandAndLeavesNothing(t *testing.T) {
	sb := start(t, nil)
	var out, errs bytes.Buffer
	st, err := sb.Exec(t.Context(), sandbox.ExecOptions{
		Argv: []string{"/bin/sh", "-c", "echo out; echo err >&2; uname -r; exit 7"}, Stdout: &out, Stderr: &errs,
	})
	if err != nil || st.Code != 7 {
		t.Errorf("exit %d, %v; want 7", st.Code, err)
	}
	if want := "out\n" + sb.Info().Kernel + "\n"; out.String() != want || errs.String() != "err\n" {
		t.Errorf("got %q and %q, want %q and %q", out.String(), errs.String(), want, "err\n")
	}
	pids := descendants(t, os.Getpid())
	if len(pids) < 2 {
		t.Errorf("processes %v, want a supervisor and a VMM", pids)
	}
	if err := sb.Close(); err != nil {
		t.Error(err)
	}
	for _, pid := range pids {
		gone(t, pid)
	}
	if left := runDirectories(t, home(t)); len(left) != 0 {
		t.Errorf("left in the run directory: %v", left)
	}
}

func TestVMExecStatus(t *testing.T) {
	sb := start(t, nil)
	run := func(opts sandbox.ExecOptions) sandbox.ExitStatus {
		t.Helper()
		st, err := sb.Exec(t.Context(), opts)
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	if st := run(sandbox.ExecOptions{Argv: []string{"nosuch"}}); st.Code != 127 {
		t.Errorf("missing program: %+v, want 127", st)
	}
	if st := run(sandbox.ExecOptions{Argv: []string{"/etc/passwd"}}); st.Code != 126 {
		t.Errorf("not executable: %+v, want 126", st)
	}
	if st := run(sandbox.ExecOptions{Argv: []string{"sh", "-c", "kill -TERM $$"}}); st.Code != 143 || st.Signal != agentclient.SIGTERM {
		t.Errorf("killed by a signal: %+v, want 143", st)
	}
	if st := run(sandbox.ExecOptions{Argv: []string{"sleep", "60"}, Timeout: 300 * time.Millisecond}); !st.TimedOut {
		t.Errorf("timeout: %+v", st)
	}
	var out bytes.Buffer
	big := strings.Repeat("0123456789abcdef", 1<<16)
	if st := run(sandbox.ExecOptions{Argv: []string{"cat"}, Stdin: strings.NewReader(big), Stdout: &out}); st.Code != 0 || out.String() != big {
		t.Errorf("1 MiB through cat: %+v, %d bytes back", st, out.Len())
	}
}

func TestVMPolicyHoldsInARealGuest(t *testing.T) {
	p, err := policies.Load("../policy.toml")
	if err != nil {
		t.Fatal(err)
	}
	audit := filepath.Join(t.TempDir(), "audit.jsonl")
	sb := start(t, func(c *sandbox.Config) { c.Policy, c.Audit, c.Trust = p, audit, true })
	out, st, err := sh(t, sb, "/bin/msb-tour")
	if err != nil || st.Code != 0 {
		t.Fatalf("the tour: %+v, %v\n%s", st, err, out)
	}
	t.Log("\n" + out)
	out, _, _ = sh(t, sb, `for a in 10.0.0.1 169.254.169.254 192.168.1.1 100.64.0.1 93.184.215.14; do
		nc -w 5 $a 80 </dev/null && echo "reached $a"; done; nslookup example.com; env; cat /proc/cmdline`)
	if strings.Contains(out, "reached") {
		t.Errorf("a denied address was reached:\n%s", out)
	}
	const value = "demo-4f1d8c7a2be94c0e9b1a"
	if strings.Contains(out, value) {
		t.Errorf("the guest saw the secret's value:\n%s", out)
	}
	log, err := os.ReadFile(audit)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(log, []byte(value)) {
		t.Error("the audit log holds the secret's value")
	}
}

func TestI8_VMValuesStayOutOfFiles(t *testing.T) {
	const value = "value-that-must-stay-in-the-supervisor-77"
	t.Setenv("VM_TEST_TOKEN", value)
	p, err := policies.Parse("t.toml", []byte(`version = 1
[[egress.allow]]
hosts = ["echo.msb.internal"]
protocol = "https"
[hosts]
"echo.msb.internal" = "builtin:echo"
[secrets.TOKEN]
from = "env:VM_TEST_TOKEN"
hosts = ["echo.msb.internal"]
in = ["header:Authorization"]
`), nil)
	if err != nil {
		t.Fatal(err)
	}
	sb := start(t, func(c *sandbox.Config) { c.Policy = p })
	out, st, err := sh(t, sb, `msb-tour get -H "Authorization: Bearer $TOKEN" https://echo.msb.internal/ || exit 1; env; cat /proc/*/environ 2>/dev/null | tr '\0' '\n'`)
	if err != nil || st.Code != 0 {
		t.Fatalf("%+v, %v\n%s", st, err, out)
	}
	sum := sha256.Sum256([]byte("Bearer " + value))
	if strings.Contains(out, value) || !strings.Contains(out, hex.EncodeToString(sum[:])) {
		t.Errorf("want the digest of the value, and not the value, in\n%s", out)
	}
	pids := descendants(t, os.Getpid())
	for _, pid := range pids[1:] { // the first is the supervisor, whose environment is the user's
		for _, f := range []string{"environ", "cmdline"} {
			b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, f))
			if bytes.Contains(b, []byte(value)) {
				t.Errorf("process %d has the value in its %s", pid, f)
			}
		}
	}
	isInNoFile(t, filepath.Join(home(t), "run"), value)
}

// isInNoFile looks for a secret's value below a directory, but in the guest's disks, where only a guest could have put it.
func isInNoFile(t *testing.T, directory, value string) {
	t.Helper()
	err := filepath.WalkDir(directory, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || filepath.Ext(path) == ".ext4" {
			return err
		}
		b, err := os.ReadFile(path)
		if bytes.Contains(b, []byte(value)) {
			t.Errorf("%s holds the value", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestI2_VMNoNetHasNoDevice(t *testing.T) {
	sb := start(t, func(c *sandbox.Config) { c.NoNet = true })
	out, _, err := sh(t, sb, "ls /sys/class/net; ls /dev/vsock 2>&1; cat /proc/net/route | wc -l; nc -w 2 192.168.127.1 53 </dev/null; echo nc $?")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out, "eth0") || !strings.Contains(out, "nc 1") {
		t.Errorf("a guest without network has\n%s", out)
	}
}

func TestVMGuestCrashesAreNamed(t *testing.T) {
	for name, tt := range map[string]struct{ line, say string }{
		"the guest leaves":  {"reboot -f; sleep 60", "left its machine"},
		"the guest halts":   {"halt -f; sleep 60", "halted its machine"},
		"it powers off":     {"poweroff -f; sleep 60", "halted its machine"},
		"its agent crashes": {"kill -SEGV 1; sleep 60", "SIGSEGV"},
	} {
		t.Run(name, func(t *testing.T) {
			sb := start(t, nil)
			_, st, err := sh(t, sb, tt.line)
			if err == nil || sandbox.KindOf(err) != sandbox.KindAgent || !strings.Contains(err.Error(), tt.say) {
				t.Errorf("got %+v, kind %s, %v; want kind %s and %q", st, sandbox.KindOf(err), err, sandbox.KindAgent, tt.say)
			}
		})
	}
}

func TestVMKernelPanicsShowTheConsole(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "home")
	// A first start writes the agent's disk; the second finds another one, with its sum, or it would be replaced.
	warm, err := sandbox.Start(t.Context(), sandbox.Config{Home: dir, Backend: "qemu"})
	if err != nil {
		t.Fatal(err)
	}
	if err := warm.Close(); err != nil {
		t.Fatal(err)
	}
	disks, err := filepath.Glob(filepath.Join(dir, "guest", "*.ext4"))
	if err != nil || len(disks) != 1 {
		t.Fatalf("%v, %v", disks, err)
	}
	bad := make([]byte, 1<<20)
	if err := errors.Join(os.Chmod(disks[0], 0o600), os.WriteFile(disks[0], bad, 0o600), os.Chmod(disks[0], 0o400),
		os.WriteFile(disks[0]+cachefile.SumSuffix, fmt.Appendf(nil, "%x \n", sha256.Sum256(bad)), 0o600)); err != nil {
		t.Fatal(err)
	}
	_, err = sandbox.Start(t.Context(), sandbox.Config{Home: dir, Backend: "qemu"})
	if err == nil || sandbox.KindOf(err) != sandbox.KindGuestPanic || !strings.Contains(err.Error(), "Kernel panic") {
		t.Errorf("got kind %s, %v; want %s with the console's end", sandbox.KindOf(err), err, sandbox.KindGuestPanic)
	}
	if left := runDirectories(t, dir); len(left) != 0 {
		t.Errorf("left in the run directory: %v", left)
	}
}

func TestVMOutOfMemoryIsNamed(t *testing.T) {
	sb := start(t, func(c *sandbox.Config) { c.Memory = 192 << 20 })
	_, st, err := sh(t, sb, "exec tail /dev/zero")
	if err != nil || !st.OOMKilled {
		t.Errorf("got %+v, %v; want an out-of-memory kill", st, err)
	}
	if out, _, err := sh(t, sb, "echo alive"); err != nil || out != "alive\n" {
		t.Errorf("after it: %q, %v", out, err)
	}
}

func TestVMDiskKeepsWhatMemoryCouldNot(t *testing.T) {
	sb := start(t, func(c *sandbox.Config) { c.Disk = 1 << 30 })
	out, st, err := sh(t, sb, "dd if=/dev/zero of=/big bs=1M count=600 2>&1 | tail -1; stat -c %s /big")
	if err != nil || st.Code != 0 || !strings.Contains(out, "629145600") {
		t.Errorf("600 MiB in a guest of 512: %+v, %v\n%s", st, err, out)
	}
}

func TestVMAPolicyChangesWhileItRuns(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.toml")
	write := func(text string) *policies.Policy {
		t.Helper()
		if err := os.WriteFile(path, []byte("version = 1\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
		p, err := policies.Load(path)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := write("")
	notices := make(chan string, 64)
	sb := start(t, func(c *sandbox.Config) {
		c.Policy, c.PolicyFile, c.Notice = p, path, func(s string) { notices <- s }
	})
	if out, st, _ := sh(t, sb, "msb-tour get https://echo.msb.internal/"); st.Code == 0 {
		t.Fatalf("reached before it was allowed: %s", out)
	}
	write("[hosts]\n\"echo.msb.internal\" = \"builtin:echo\"\n")
	out, st, err := sh(t, sb, "for i in 1 2 3 4 5 6 7 8 9 10; do msb-tour get https://echo.msb.internal/ && exit 0; sleep 1; done; exit 1")
	if err != nil || st.Code != 0 {
		t.Errorf("not reached after it was allowed: %+v, %v\n%s", st, err, out)
	}
	for told := ""; !strings.Contains(told, "new policy is in force"); {
		select {
		case told = <-notices:
		case <-time.After(time.Minute):
			t.Fatal("nothing was said of the new policy")
		}
	}
}

// callerEnv makes the test's program start a sandbox under this state directory and wait to be killed.
const callerEnv = "MSB_TEST_CALLER"

func waitingCaller(home string) error {
	sb, err := sandbox.Start(context.Background(), sandbox.Config{Home: home, Backend: "qemu"})
	if err != nil {
		return err
	}
	fmt.Println(sb.ID())
	_, err = io.Copy(io.Discard, os.Stdin)
	return errors.Join(err, sb.Close())
}

// caller starts the test's program as a caller and returns once its sandbox runs.
func caller(t *testing.T, home string) (*exec.Cmd, string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), callerEnv+"="+home)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Process.Kill(); _ = cmd.Wait() })
	id := make([]byte, 64)
	n, err := out.Read(id)
	if err != nil {
		t.Fatalf("the caller did not start its sandbox: %v", err)
	}
	return cmd, strings.TrimSpace(string(id[:n]))
}

func TestI13_VMKilledCallerLeavesNothing(t *testing.T) {
	dir := home(t)
	cmd, _ := caller(t, dir)
	pids := descendants(t, cmd.Process.Pid)
	if len(pids) < 2 {
		t.Fatalf("processes %v, want a supervisor and a VMM", pids)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		gone(t, pid)
	}
	if left := runDirectories(t, dir); len(left) != 0 {
		t.Errorf("left in the run directory: %v", left)
	}
}

func TestI13_VMKilledSupervisorsAreCleanedUp(t *testing.T) {
	dir := home(t)
	cmd, id := caller(t, dir)
	pids := descendants(t, cmd.Process.Pid)
	if len(pids) < 2 {
		t.Fatalf("processes %v, want a supervisor and a VMM", pids)
	}
	if err := syscall.Kill(pids[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		gone(t, pid)
	}
	if _, err := os.Stat(filepath.Join(dir, "run", id)); err != nil {
		t.Fatalf("the test is moot: the directory is gone before anything cleaned up: %v", err)
	}
	// Without its marker it is adopted, with all that real sandboxes, images and kernels leave in it.
	if err := os.Remove(filepath.Join(dir, "msb-home")); err != nil {
		t.Fatal(err)
	}
	// A process is a zombie while its last threads still hold its descriptors, the lock among them.
	deadline := time.Now().Add(20 * time.Second)
	for left := []string{id}; len(left) != 0; left = runDirectories(t, dir) {
		if _, err := sandbox.OpenHome(dir); err != nil {
			t.Fatal(err)
		}
		if time.Now().After(deadline) {
			t.Fatalf("left in the run directory: %v", left)
		}
	}
}

// TestVMGuestsClockIsKept takes the guest's clock a year back and stops the VMM for a while.
func TestVMGuestsClockIsKept(t *testing.T) {
	sb := start(t, func(cfg *sandbox.Config) { cfg.Cold = true }) // the handshake waits for the boot
	if at := guestTime(t, sb); at.off != 0 {
		t.Errorf("the guest's clock at its first command: %+v", at)
	}
	if out, st, err := sh(t, sb, "date -s 2020-01-01"); err != nil || st.Code != 0 {
		t.Fatalf("set the clock: exit %d, %v: %s", st.Code, err, out)
	}
	vmm := machineOf(t)
	if err := syscall.Kill(vmm, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	<-time.After(3 * time.Second)
	if err := syscall.Kill(vmm, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(90 * time.Second); ; <-time.After(time.Second) {
		at := guestTime(t, sb)
		if at.off == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the guest's clock: %+v", at)
		}
	}
}

// reading is a guest's clock in seconds, and by how much it was outside of the time in which it was asked, but for a second.
type reading struct{ guest, off int64 }

func guestTime(t *testing.T, sb *sandbox.Sandbox) reading {
	t.Helper()
	before := time.Now().Unix()
	out, _, err := sh(t, sb, "date +%s")
	after := time.Now().Unix()
	if err != nil {
		t.Fatal(err)
	}
	guest, err := strconv.ParseInt(strings.TrimSpace(out), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return reading{guest, min(guest-(before-1), 0) + max(guest-(after+1), 0)}
}

// machineOf finds the one QEMU below this process.
func machineOf(t *testing.T) int {
	t.Helper()
	for _, pid := range descendants(t, os.Getpid()) {
		if name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); err == nil && strings.HasPrefix(string(name), "qemu-system") {
			return pid
		}
	}
	t.Fatal("no QEMU runs below this process")
	return 0
}

// What a sandbox costs the host beside its machine: the program's own pages are
// shared by all of them.
func TestVMSupervisorIsSmall(t *testing.T) {
	sb := start(t, nil)
	if _, _, err := sh(t, sb, "true"); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", descendants(t, os.Getpid())[0]))
	if err != nil {
		t.Fatal(err)
	}
	var private int
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			private, err = strconv.Atoi(strings.Fields(rest)[0])
		}
	}
	if err != nil || private == 0 {
		t.Fatalf("no size in %s: %v", b, err)
	}
	t.Logf("supervisor: %d KiB of its own", private)
	if private > 20<<10 {
		t.Errorf("supervisor: %d KiB of its own, want at most 20 MiB", private)
	}
}
