//go:build !vmtest

package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// startMain starts sandbox a with a main command that waits for a signal.
func startMain(t *testing.T, h *Home, restart string) *Job {
	t.Helper()
	cfg := operation{Home: h.Dir(), Name: "a", Root: t.TempDir()}.config()
	var err error
	cfg.Restart, err = ParseRestart(restart)
	must(t, err)
	sb, err := Start(t.Context(), cfg)
	must(t, err)
	_, err = sb.StartJob(t.Context(), MainJob, ExecOptions{Argv: []string{"wait"}, Env: []string{"A=b"}})
	must(t, err)
	must(t, sb.Close())
	t.Cleanup(func() { _ = h.Stop(t.Context(), "a") }) // after a failure
	j, err := h.Job("a", MainJob)
	must(t, err)
	return j
}

func runOf(t *testing.T, h *Home) (r state.RunRecord) {
	t.Helper()
	must(t, state.ReadJSON(namedPath(h, "a"), state.InfoFile, &r))
	return r
}

// crash kills the machine, as the kernel does for want of memory.
func crash(t *testing.T, h *Home) state.RunRecord {
	t.Helper()
	r := runOf(t, h)
	must(t, syscall.Kill(r.VMM.PID, syscall.SIGKILL))
	return r
}

// await is for what other processes do.
func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never came true: %s", what)
		}
	}
}

// TestI13_CrashedGuestsAreStartedAgain in the same supervisor, as the restart policy says, with what they had written to
// their disk and the output of the main command. The twin is the same crash without a policy.
func TestI13_CrashedGuestsAreStartedAgain(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	do := func(verb, key string) string {
		t.Helper()
		out, err := operation{Verb: verb, Home: h.Dir(), Name: "a", Key: key}.do(t.Context(), h)
		must(t, err)
		return out
	}
	j := startMain(t, h, "on-failure:2")
	do("append", "kept")
	do("sync", "")
	for n := 1; n <= 2; n++ {
		before := crash(t, h)
		await(t, "the next machine", func() bool {
			var r state.RunRecord
			return state.ReadJSON(namedPath(h, "a"), state.InfoFile, &r) == nil && r.Info != nil && r.VMM != before.VMM
		})
		if now := runOf(t, h); now.Supervisor != before.Supervisor {
			t.Errorf("supervisor %+v, was %+v", now.Supervisor, before.Supervisor)
		}
		await(t, "the command runs again", func() bool {
			st, err := j.Status()
			return err == nil && st.State == JobRunning && st.Restarts == n
		})
		if out := do("list", ""); out != "kept" {
			t.Errorf("the disk has %q", out)
		}
	}
	crash(t, h)
	if st, err := j.Wait(t.Context()); !errors.Is(err, ErrJobLost) || st.Restarts != 2 {
		t.Errorf("after the last: %+v, %v", st, err)
	}
	await(t, "the sandbox ends", func() bool {
		st, err := h.Inspect("a")
		return err == nil && !st.Running && st.End != nil && st.End.Kind == KindAgent
	})
	must(t, h.Remove(t.Context(), "a"))

	j = startMain(t, h, "no")
	crash(t, h)
	if _, err := j.Wait(t.Context()); !errors.Is(err, ErrJobLost) {
		t.Errorf("without a policy: %v", err)
	}
	await(t, "the sandbox ends", func() bool { st, err := h.Inspect("a"); return err == nil && !st.Running })
}

// TestCrashesOutliveNoLifetime: a guest that crashes when its lifetime is over is not started again. The twin has time left.
func TestCrashesOutliveNoLifetime(t *testing.T) {
	t.Parallel()
	const lifetime = 24 * time.Hour
	for _, left := range []time.Duration{1, lifetime} {
		h := newHome(t)
		cfg := operation{Home: h.Dir(), Name: "a", Root: t.TempDir()}.config()
		cfg.Lifetime = lifetime
		var err error
		cfg.Restart, err = ParseRestart("always")
		must(t, err)
		must(t, Create(t.Context(), cfg))
		st, err := loadStored(h, "a")
		must(t, err)
		st.Ran = lifetime - left
		must(t, state.WriteJSON(namedPath(h, "a"), state.StoredFile, st))
		sb, err := StartNamed(t.Context(), "a", StartOptions{Home: h.Dir()})
		must(t, err)
		_, err = sb.StartJob(t.Context(), MainJob, ExecOptions{Argv: []string{"wait"}})
		must(t, err)
		must(t, sb.Close())
		t.Cleanup(func() { _ = h.Stop(t.Context(), "a") }) // after a failure
		j, err := h.Job("a", MainJob)
		must(t, err)
		crash(t, h)
		if left > 1 {
			await(t, "the command runs again", func() bool { st, err := j.Status(); return err == nil && st.Restarts == 1 })
			must(t, h.Stop(t.Context(), "a"))
			continue
		}
		await(t, "the sandbox ends", func() bool {
			st, err := h.Inspect("a")
			return err == nil && !st.Running && st.End != nil && st.End.Kind == KindLifetime
		})
		if st, err := j.Status(); err != nil || st.State != JobLost || st.Restarts != 0 {
			t.Errorf("its command: %+v, %v", st, err)
		}
	}
}

// TestRestartedGuestsTakeSignals, and the end of the command by one ends the restarts; the log goes on over them.
func TestRestartedGuestsTakeSignals(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	j := startMain(t, h, "always")
	crash(t, h)
	await(t, "the command runs again", func() bool { st, err := j.Status(); return err == nil && st.Restarts == 1 })
	await(t, "a signal", func() bool { return j.Kill(t.Context(), agentclient.SIGTERM) == nil })
	if st, err := j.Wait(t.Context()); err != nil || st.State != JobKilled || st.Signal != int(agentclient.SIGTERM) {
		t.Errorf("%+v, %v", st, err)
	}
	log, err := j.Logs(t.Context(), LogOptions{})
	must(t, err)
	out, err := io.ReadAll(log)
	if err != nil || strings.Contains(string(out), "missing") {
		t.Errorf("%q, %v", out, err)
	}
	must(t, log.Close())
	must(t, h.Stop(t.Context(), "a"))
}

// TestStoppedCrashesStayStopped at whatever moment of the restart the stop comes.
func TestStoppedCrashesStayStopped(t *testing.T) {
	t.Parallel()
	for _, pause := range []time.Duration{0, time.Millisecond, 20 * time.Millisecond, 100 * time.Millisecond, 150 * time.Millisecond} {
		h := newHome(t)
		j := startMain(t, h, "always")
		crash(t, h)
		time.Sleep(pause) // the moments of a restart that a test can't see
		if err := h.Stop(t.Context(), "a"); err != nil {
			b, _ := os.ReadFile(namedPath(h, "a", state.SupervisorLog))
			t.Fatalf("%s: %v: %s", pause, err, b)
		}
		if st, err := h.Inspect("a"); err != nil || st.Running {
			t.Errorf("%s: %+v, %v", pause, st, err)
		}
		if st, err := j.Status(); err != nil || st.State != JobLost {
			t.Errorf("%s: %+v, %v", pause, st, err)
		}
		run, err := lockSettled(t.Context(), h, "a")
		must(t, err)
		must(t, run.lock.Close())
	}
}

// standIn is the recorded supervisor of a sandbox: a process that ends with code 7 when it is asked to.
func standIn(t *testing.T, h *Home, name string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sh", state.Verb) //nolint:noctx // the test ends it
	cmd.Dir = t.TempDir()
	must(t, os.WriteFile(filepath.Join(cmd.Dir, state.Verb), []byte("trap 'exit 7' TERM; echo; while :; do sleep 0.01; done"), 0o600))
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	_, err = out.Read(make([]byte, 1))
	must(t, err)
	must(t, state.WriteJSON(namedPath(h, name), state.InfoFile, state.RunRecord{Started: time.Now(), Supervisor: state.Identify(cmd.Process.Pid)}))
	return cmd
}

// TestStopsReachSupervisorsWithoutSockets: somebody removed the socket, and the lock says that there is a run. Stop of
// another sandbox that had the name ends nothing.
func TestStopsReachSupervisorsWithoutSockets(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	must(t, aNamed(t, h, "a"))
	cmd := standIn(t, h, "a")
	run, err := lockNamed(h, "a")
	must(t, err)
	if err := h.Only(time.Unix(1, 0)).Stop(t.Context(), "a"); !errors.Is(err, ErrNoSandbox) || state.Identify(cmd.Process.Pid).Gone(0) == nil {
		t.Errorf("of another sandbox: %v", err)
	}
	must(t, h.Stop(t.Context(), "a"))
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 7 {
		t.Errorf("it was not asked to end: %v", err)
	}
	must(t, run.lock.Close())
}

// TestWatchEndWaitsForTheSupervisor, which writes down how the run ended after it has closed its connections.
func TestWatchEndWaitsForTheSupervisor(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	must(t, aNamed(t, h, "a"))
	cmd := standIn(t, h, "a")
	watch := func() func(context.Context) error {
		t.Helper()
		conn, far, err := state.SocketPair()
		must(t, err)
		must(t, far.Close())
		wait, err := watchEnd(h, "a", conn)
		must(t, err)
		return wait
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := watch()(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("while it lives: %v", err)
	}
	wait := watch()
	must(t, state.WriteJSON(namedPath(h, "a"), state.EndFile, End{Time: time.Now(), Kind: KindIdle, Message: "nobody used it"}))
	must(t, cmd.Process.Kill())
	_ = cmd.Wait()
	if err := Fail(wait(t.Context())); KindOf(err) != KindIdle || !strings.Contains(err.Error(), "sandbox a ended: nobody used it") {
		t.Errorf("of kind %q: %v; want its reason", KindOf(err), err)
	}
}

// TestStopsReachSupervisorsThatHungUp: one that executes itself again closes its connections and goes on.
func TestStopsReachSupervisorsThatHungUp(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	must(t, aNamed(t, h, "a"))
	cmd := standIn(t, h, "a")
	l, err := net.Listen("unix", filepath.Join(namedPath(h, "a"), state.ControlSock)) //nolint:noctx // of a test
	must(t, err)
	go func() {
		for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
			_ = conn.Close()
		}
	}()
	for err = state.ErrForeign; errors.Is(err, state.ErrForeign); { // this process, whose connection isn't closed yet
		err = h.Stop(t.Context(), "a")
	}
	must(t, err)
	must(t, l.Close())
	if state.Identify(cmd.Process.Pid).Gone(0) != nil {
		t.Fatal("the supervisor goes on")
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 7 {
		t.Errorf("it was not asked to end: %v", err)
	}
}

// TestI13_UpgradesUnderRunningSandboxes: while a sandbox runs, another build is renamed over the msb that started it.
// Commands, the audit log and the calls that were recorded go on; its supervisor starts a crashed guest again as the build
// that it is; and the next start is by the new build, with all that there was.
func TestI13_UpgradesUnderRunningSandboxes(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	self, err := os.ReadFile("/proc/self/exe")
	must(t, err)
	installed := filepath.Join(t.TempDir(), "msb")
	must(t, os.WriteFile(installed, self, 0o700)) //nolint:gosec // a program
	cfg := operation{Home: h.Dir(), Name: "a", Root: t.TempDir()}.config()
	cfg.Program = installed
	cfg.Restart, err = ParseRestart("always")
	must(t, err)
	sb, err := Start(t.Context(), cfg)
	must(t, err)
	_, err = sb.StartJob(t.Context(), MainJob, ExecOptions{Argv: []string{"wait"}})
	must(t, err)
	must(t, sb.Close())
	t.Cleanup(func() { _ = h.Stop(t.Context(), "a") }) // after a failure
	do := func(verb, key string) string {
		t.Helper()
		out, err := operation{Verb: verb, Home: h.Dir(), Name: "a", Key: key}.do(t.Context(), h)
		must(t, err)
		return out
	}
	isInstalled := func() bool {
		t.Helper()
		now, err := os.Stat(installed)
		must(t, err)
		runs, err := os.Stat(fmt.Sprintf("/proc/%d/exe", runOf(t, h).Supervisor.PID))
		must(t, err)
		return os.SameFile(now, runs)
	}
	do("append", "before")
	must(t, AddCall(h, "a", []byte(`{"tool":"before"}`)))
	if !isInstalled() {
		t.Fatal("the supervisor isn't the msb that was named")
	}

	must(t, os.WriteFile(installed+".new", append(self, "another build"...), 0o700)) //nolint:gosec // a program
	must(t, os.Rename(installed+".new", installed))
	do("append", "after")
	do("sync", "")
	must(t, AddCall(h, "a", []byte(`{"tool":"after"}`)))
	before := crash(t, h)
	await(t, "the next machine", func() bool { r := runOf(t, h); return r.Info != nil && r.VMM != before.VMM })
	if runOf(t, h).Supervisor != before.Supervisor || isInstalled() {
		t.Error("the crashed guest was started by another supervisor, or another build")
	}
	if out := do("list", ""); out != "before\nafter" {
		t.Errorf("the disk has %q", out)
	}

	must(t, h.Stop(t.Context(), "a"))
	sb, err = StartNamed(t.Context(), "a", StartOptions{Home: h.Dir(), Program: installed})
	must(t, err)
	must(t, sb.Close())
	if !isInstalled() {
		t.Error("the next start isn't the new build's")
	}
	if out := do("list", ""); out != "before\nafter" {
		t.Errorf("the disk has %q", out)
	}
	calls, err := PastCalls(h, "a")
	must(t, err)
	if text := string(bytes.Join(calls, nil)); text != `{"tool":"before"}{"tool":"after"}` {
		t.Errorf("the calls are %s", text)
	}
	must(t, h.Stop(t.Context(), "a"))
	log, err := os.ReadFile(namedPath(h, "a", state.AuditLog))
	must(t, err)
	for part, lines := range map[string]int{
		`"kind":"sandbox.start"`: 3, `"kind":"sandbox.restart"`: 1, `"kind":"sandbox.stop"`: 3, `"program":"append","exit_code":0`: 2,
	} {
		if n := strings.Count(string(log), part); n != lines {
			t.Errorf("%d lines with %s, want %d: %s", n, part, lines, log)
		}
	}
}
