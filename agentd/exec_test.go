//go:build linux

package agentd

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/agentd/agentpb"
	"github.com/msb-project/msb/agentd/internal/workload"
)

func TestExecReportsHowAProcessEnded(t *testing.T) {
	s := dial(t, agentclient.Options{Env: []string{"BASE=1", "BOTH=base"}})
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, []byte("#!/bin/sh\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	garbage := filepath.Join(t.TempDir(), "garbage")
	if err := os.WriteFile(garbage, []byte("\x7fELFnot really"), 0o700); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name   string
		opts   agentclient.ExecOptions
		code   int
		signal agentclient.Signal
		start  agentclient.StartError
		out    string
		err    string
	}{
		{name: "output and code", opts: script("echo out; echo err >&2; exit 3"), code: 3, out: "out\n", err: "err\n"},
		{name: "signal", opts: script("kill -9 $$"), code: 137, signal: 9},
		{name: "not found in PATH", opts: agentclient.ExecOptions{Argv: []string{"no-such-program"}}, code: 127, start: agentclient.NotFound},
		{name: "no such file", opts: agentclient.ExecOptions{Argv: []string{"/no/such/file"}}, code: 127, start: agentclient.NotFound},
		{name: "not executable", opts: agentclient.ExecOptions{Argv: []string{plain}}, code: 126, start: agentclient.NotExecutable},
		{name: "a directory", opts: agentclient.ExecOptions{Argv: []string{"/tmp"}}, code: 126, start: agentclient.NotExecutable},
		{name: "exec format error", opts: agentclient.ExecOptions{Argv: []string{garbage}}, code: 126, start: agentclient.NotExecutable},
		{name: "no stdin is end of file", opts: script("cat; echo done"), out: "done\n"},
		{name: "looked up in the PATH given", opts: agentclient.ExecOptions{Argv: []string{"plain"}, Env: []string{"PATH=/nowhere:" + filepath.Dir(plain)}}, code: 126, start: agentclient.NotExecutable},
		{
			name: "environment", out: "1 over x\n",
			opts: func() agentclient.ExecOptions {
				o := script(`echo "$BASE $BOTH $OWN"`)
				o.Env = []string{"BOTH=over", "OWN=x"}
				return o
			}(),
		},
		{
			name: "working directory", out: "/usr\n",
			opts: func() agentclient.ExecOptions { o := script("pwd"); o.Dir = "/usr/../usr/"; return o }(),
		},
		{
			name: "limits hold from the first instruction", out: "123\n",
			opts: func() agentclient.ExecOptions {
				o := script("ulimit -n")
				o.Rlimits = []agentclient.Rlimit{{Name: "nofile", Soft: 123, Hard: 456}}
				return o
			}(),
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := s.run(t, tt.opts)
			if got.Code != tt.code || got.Signal != tt.signal || got.StartError != tt.start || got.out != tt.out || got.err != tt.err {
				t.Errorf("got %+v\nwant %+v", got, tt)
			}
			if (tt.start != agentclient.Started) != (got.Message != "") {
				t.Errorf("message %q", got.Message)
			}
		})
	}
}

func TestExecMakesWorkingDirectories(t *testing.T) {
	s := dial(t, agentclient.Options{})
	top := filepath.Join(t.TempDir(), "a")
	o := script("pwd")
	o.Dir = filepath.Join(top, "b")
	if got := s.run(t, o); got.Code != 127 || got.StartError != agentclient.NotFound || !strings.Contains(got.Message, o.Dir) {
		t.Errorf("one that is missing: got %+v", got)
	}
	if _, err := os.Lstat(top); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it was made: %v", err)
	}
	o.MakeDir = true
	if got := s.run(t, o); got.out != o.Dir+"\n" {
		t.Errorf("one that is to be made: got %+v", got)
	}
	for _, o.MakeDir = range []bool{false, true} {
		for _, o.Dir = range []string{"/etc/passwd", "/etc/passwd/x"} {
			if got := s.run(t, o); got.Code != 126 || got.StartError != agentclient.NotExecutable {
				t.Errorf("%s: got %+v", o.Dir, got)
			}
		}
	}
}

func TestExecRefusesInvalidRequests(t *testing.T) {
	s := dial(t, agentclient.Options{})
	for name, change := range map[string]func(*agentclient.ExecOptions){
		"no program":            func(o *agentclient.ExecOptions) { o.Argv = nil },
		"NUL in an argument":    func(o *agentclient.ExecOptions) { o.Argv = []string{"/bin/true", "a\x00b"} },
		"NUL in the directory":  func(o *agentclient.ExecOptions) { o.Dir = "/tmp\x00x" },
		"NUL in the user":       func(o *agentclient.ExecOptions) { o.User = "root\x00x" },
		"NUL in a variable":     func(o *agentclient.ExecOptions) { o.Env = []string{"A=b\x00c"} },
		"variable without key":  func(o *agentclient.ExecOptions) { o.Env = []string{"=x"} },
		"unknown user":          func(o *agentclient.ExecOptions) { o.User = "no-such-user" },
		"unknown group":         func(o *agentclient.ExecOptions) { o.User = "root:no-such-group" },
		"relative directory":    func(o *agentclient.ExecOptions) { o.Dir = "../../etc" },
		"unknown limit":         func(o *agentclient.ExecOptions) { o.Rlimits = []agentclient.Rlimit{{Name: "wishes"}} },
		"soft limit above hard": func(o *agentclient.ExecOptions) { o.Rlimits = []agentclient.Rlimit{{Name: "core", Soft: 2, Hard: 1}} },
		"limit above the system": func(o *agentclient.ExecOptions) {
			o.Rlimits = []agentclient.Rlimit{{Name: "nofile", Soft: 1, Hard: 1 << 40}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := agentclient.ExecOptions{Argv: []string{"/bin/true"}}
			change(&o)
			st, err := s.Exec(t.Context(), o)
			if !errors.Is(err, agentclient.ErrRefused) {
				t.Errorf("got %+v, %v; want ErrRefused", st, err)
			}
		})
	}
	if got := s.run(t, script("echo fine")); got.out != "fine\n" {
		t.Errorf("the session does not go on: %+v", got)
	}
}

func TestExecPassesStdinWhole(t *testing.T) {
	s := dial(t, agentclient.Options{})
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<16) // 1 MiB: eight times the window
	o := script("sha256sum")
	o.Stdin = bytes.NewReader(data)
	if got, want := s.run(t, o), fmt.Sprintf("%x  -\n", sha256.Sum256(data)); got.out != want {
		t.Errorf("got %+v, want %s", got, want)
	}
}

func TestExecEndsWithUnreadStdin(t *testing.T) {
	s := dial(t, agentclient.Options{})
	o := script("exec 0<&-; echo done")
	o.Stdin = bytes.NewReader(make([]byte, 4<<20))
	if got := s.run(t, o); got.out != "done\n" || got.Code != 0 {
		t.Errorf("got %+v", got)
	}
}

func TestExecSignalsReachIdleProcesses(t *testing.T) {
	s := dial(t, agentclient.Options{})
	signals := make(chan agentclient.Signal, 1)
	o := script("trap 'echo got; exit 5' TERM; echo ready; while :; do sleep 0.05; done")
	o.Stdin = endless{}
	o.Signals = signals
	o.Stdout = onFirstWrite(func() { signals <- agentclient.SIGTERM })
	if got := s.run(t, o); got.Code != 5 {
		t.Errorf("got %+v", got)
	}
}

// TestExecTimeoutWakesAStoppedProcess: a stopped process takes SIGTERM only once it is continued.
func TestExecTimeoutWakesAStoppedProcess(t *testing.T) {
	s := dial(t, agentclient.Options{}, func(s *server) { s.killGrace = time.Minute })
	o := script("trap 'echo woken; exit 7' TERM; kill -STOP $$; while :; do sleep 0.05; done")
	o.Timeout = 3 * time.Second // the shell has set its trap by then
	if got := s.run(t, o); !got.TimedOut || got.Code != 7 || got.out != "woken\n" {
		t.Errorf("got %+v, want its own end within the grace", got)
	}
}

// endless is a stdin that never ends.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// onFirstWrite calls f once, with the first output.
func onFirstWrite(f func()) io.Writer {
	var once sync.Once
	return writerFunc(func(p []byte) (int, error) { once.Do(f); return len(p), nil })
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestExecTimeoutKillsTheGroup(t *testing.T) {
	s := dial(t, agentclient.Options{}, func(s *server) { s.killGrace = 50 * time.Millisecond })
	for name, text := range map[string]string{
		"one that ends on SIGTERM": "sleep 1000",
		"one that ignores it":      "trap '' TERM; while :; do sleep 0.05; done",
		"one that is stopped":      "kill -STOP $$",
		"one with children":        "sleep 1000 & sleep 1000 & wait",
	} {
		t.Run(name, func(t *testing.T) {
			o := script(text)
			o.Timeout = 100 * time.Millisecond
			if got := s.run(t, o); !got.TimedOut || got.Signal == 0 {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// TestTimeoutsEndTheControlGroup also when the process itself took the SIGTERM: what left its process group has had its
// time too. The control group is a directory, in which its end is asked for by a file. The twin ends in time.
func TestTimeoutsEndTheControlGroup(t *testing.T) {
	s := newSession(t)
	for timeout, killed := range map[time.Duration]bool{50 * time.Millisecond: true, time.Hour: false} {
		mount := t.TempDir()
		all, err := workload.NewCgroups(mount, workload.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		group, err := all.New()
		if err != nil {
			t.Fatal(err)
		}
		text := "exec sleep 1000"
		if !killed {
			text = "exit 0"
		}
		proc, err := s.server.spawner.Start(workload.Command{Argv: []string{"/bin/sh", "-c", text}})
		if err != nil {
			t.Fatal(err)
		}
		e := &execution{proc: proc}
		s.server.supervise(t.Context(), e, timeout, group)
		_, err = os.Lstat(filepath.Join(mount, "msb/exec-1/cgroup.kill"))
		if e.timedOut != killed || (err == nil) != killed {
			t.Errorf("after %s: timed out %t, the control group's end: %v", timeout, e.timedOut, err)
		}
		e.stdin = newStdinQueue()
		e.closeStreams()
		group.Close()
	}
}

// refilled is a stream to the host for which another process writes as much to the pipe as was read from it.
type refilled struct {
	agentpb.Agent_ExecServer
	pipe *os.File
	sent int
}

func (r *refilled) Send(resp *agentpb.ExecResponse) error {
	if r.sent += len(resp.GetStdout()); r.sent > 2*maxPipeBytes {
		return errors.New("there is no bound")
	}
	_, err := r.pipe.Write(resp.GetStdout())
	return err
}

// TestI11_LastOutputIsBounded: what is in the pipe when a process ends comes with its exit, and nothing that another
// writes for ever. The twin's pipe is not filled again, and all of it comes.
func TestI11_LastOutputIsBounded(t *testing.T) {
	t.Parallel()
	for _, again := range []bool{true, false} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		in := bytes.Repeat([]byte("x"), 40_000)
		if _, err := w.Write(in); err != nil {
			t.Fatal(err)
		}
		s := &refilled{pipe: w}
		if !again {
			if s.pipe, err = os.OpenFile(os.DevNull, os.O_WRONLY, 0); err != nil {
				t.Fatal(err)
			}
		}
		stdout := func(b []byte) *agentpb.ExecResponse {
			return &agentpb.ExecResponse{Response: &agentpb.ExecResponse_Stdout{Stdout: b}}
		}
		held := (&outputPumps{}).flush(&execution{stream: s}, r, make([]byte, agentpb.ChunkBytes), stdout)
		if want := map[bool]int{true: maxPipeBytes, false: len(in)}[again]; !held || s.sent != want {
			t.Errorf("filled again %t: %d bytes, want %d; held %t", again, s.sent, want, held)
		}
		for _, f := range []*os.File{r, w, s.pipe} {
			f.Close()
		}
	}
}

func TestBackgroundProcessesDontHoldExec(t *testing.T) {
	s := dial(t, agentclient.Options{})
	pid := s.run(t, script("sleep 1000 & echo $!"))
	if !pid.OutputHeld || pid.Code != 0 || pid.out == "" {
		t.Errorf("got %+v", pid)
	}
	s.run(t, script("kill -9 "+strings.TrimSpace(pid.out)))
}

// TestI11_EndlessChildrenDontHoldExec: one that is left behind fills the pipe as fast as it is read.
func TestI11_EndlessChildrenDontHoldExec(t *testing.T) {
	s := dial(t, agentclient.Options{})
	pid := filepath.Join(t.TempDir(), "pid")
	o := script("yes & echo $! > " + pid)
	o.Stdout = io.Discard
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	st, err := s.Exec(ctx, o)
	if err != nil || !st.OutputHeld {
		t.Errorf("got %+v, %v", st, err)
	}
	s.run(t, script("kill -9 $(cat "+pid+")"))
}

// writer is a script whose child writes more than a pipe holds once dir/N is there, and leaves its exit code in dir/N.code.
func writer(dir string, n int, stream string) agentclient.ExecOptions {
	return script(fmt.Sprintf(`cd %s; (while [ ! -e %d ]; do sleep 0.02; done; head -c 2000000 /dev/zero %s; echo $? > t%d; mv t%d %d.code) & echo started`, dir, n, stream, n, n, n))
}

// letWrite lets a writer's child write and returns its exit code.
func letWrite(t *testing.T, dir string, n int) string {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(n)), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for {
		b, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("%d.code", n)))
		if err == nil {
			return strings.TrimSpace(string(b))
		}
		if t.Context().Err() != nil {
			t.Fatal("the child did not end")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestChildrenWriteAfterExecEnds(t *testing.T) {
	s := dial(t, agentclient.Options{})
	dir := t.TempDir()
	for n, stream := range []string{"", ">&2"} {
		if got := s.run(t, writer(dir, n, stream)); got.out != "started\n" || !got.OutputHeld {
			t.Fatalf("got %+v", got)
		}
		if code := letWrite(t, dir, n); code != "0" {
			t.Errorf("stream %d: the child's write ended with %s, want 0 (141 is SIGPIPE)", n+1, code)
		}
	}
}

func TestI11_StreamsLeftBehindAreBounded(t *testing.T) {
	const most = 2 // the streams of one child
	s := dial(t, agentclient.Options{}, func(s *server) { s.left.max = most })
	dir := t.TempDir()
	for n := range 3 {
		s.run(t, writer(dir, n, ""))
	}
	for n, want := range []string{"141", "141", "0"} {
		if code := letWrite(t, dir, n); code != want {
			t.Errorf("child %d: its write ended with %s, want %s", n, code, want)
		}
	}
	s.server.left.mu.Lock()
	defer s.server.left.mu.Unlock()
	if n := len(s.server.left.files); n > most {
		t.Errorf("%d streams are read", n)
	}
}

func TestSlowReadersLoseNothing(t *testing.T) {
	s := dial(t, agentclient.Options{}, func(s *server) { s.drainGrace = time.Nanosecond })
	n := 0
	o := script("head -c 1000000 /dev/zero")
	o.Stdout = writerFunc(func(p []byte) (int, error) { n += len(p); time.Sleep(time.Millisecond); return len(p), nil })
	if got := s.run(t, o); n != 1000000 || got.OutputHeld {
		t.Errorf("got %d bytes, %+v", n, got)
	}
}

func TestI11_ExecOutputHasBackpressure(t *testing.T) {
	counter := filepath.Join(t.TempDir(), "count") // removed when the process has ended, which writes there until then
	s := dial(t, agentclient.Options{})
	o := script(`i=0; while :; do head -c 65536 /dev/zero; i=$((i+1)); echo $i >` + counter + `; done`)
	blocked, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	o.Stdout = writerFunc(func(p []byte) (int, error) {
		once.Do(func() { close(blocked); <-release })
		return len(p), nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { _, err := s.Exec(ctx, o); done <- err }()
	<-blocked
	// The writer stops when the windows are full: the count comes to rest.
	last, same := "", 0
	for same < 10 {
		time.Sleep(50 * time.Millisecond)
		b, err := os.ReadFile(counter)
		if err == nil && string(b) == last && last != "" {
			same++
			continue
		}
		last, same = string(b), 0
	}
	var chunks int
	if _, err := fmt.Sscan(last, &chunks); err != nil || chunks > 32 {
		t.Errorf("the process wrote %s chunks of 64 KiB to a reader that stopped (%v)", last, err)
	}
	cancel()
	close(release)
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestExecCancelKillsTheProcess(t *testing.T) {
	s := dial(t, agentclient.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	o := script("trap '' TERM INT; echo $$; while :; do sleep 0.05; done")
	var out bytes.Buffer
	o.Stdout = io.MultiWriter(&out, onFirstWrite(cancel))
	if _, err := s.Exec(ctx, o); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	pid := strings.TrimSpace(out.String())
	for {
		if _, err := os.Stat("/proc/" + pid); errors.Is(err, os.ErrNotExist) {
			return
		}
		time.Sleep(10 * time.Millisecond) // the test's own timeout bounds it
	}
}

func TestExecOnATerminal(t *testing.T) {
	s := dial(t, agentclient.Options{})
	resize := make(chan agentclient.Size, 1)
	o := script(`test -t 0 && stty size; trap 'stty size; exit 4' WINCH; echo ready; while :; do sleep 0.05; done`)
	o.TTY, o.Size, o.Resize = true, agentclient.Size{Rows: 11, Cols: 22}, resize
	var out bytes.Buffer
	var once sync.Once
	o.Stdout = writerFunc(func(p []byte) (int, error) {
		out.Write(p)
		if strings.Contains(out.String(), "ready") {
			once.Do(func() { resize <- agentclient.Size{Rows: 33, Cols: 44} })
		}
		return len(p), nil
	})
	if got := s.run(t, o); got.Code != 4 || out.String() != "11 22\r\nready\r\n33 44\r\n" {
		t.Errorf("got %+v, %q", got, out.String())
	}
}

func TestExecTerminalTakesEndOfStdin(t *testing.T) {
	s := dial(t, agentclient.Options{})
	o := agentclient.ExecOptions{Argv: []string{"cat"}, TTY: true, Stdin: strings.NewReader("hi\n")}
	if got := s.run(t, o); got.Code != 0 || got.out != "hi\r\nhi\r\n" {
		t.Errorf("got %+v", got)
	}
}

func TestI11_ExecsAreBounded(t *testing.T) {
	const most, asked = 4, 200
	s := dial(t, agentclient.Options{}, func(s *server) { s.maxExecs = most })
	hold, release := io.Pipe()
	var ran, busy, other int
	var mu sync.Mutex
	var wg sync.WaitGroup
	up, refused := make(chan struct{}, asked), make(chan struct{}, asked)
	for range asked {
		wg.Go(func() {
			o := agentclient.ExecOptions{Argv: []string{"sh", "-c", "echo up; cat"}, Stdin: hold, Stdout: notice{up}}
			st, err := s.Exec(t.Context(), o)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil && st.Code == 0:
				ran++
			case errors.Is(err, agentclient.ErrBusy):
				busy++
				refused <- struct{}{}
			default:
				other++
				refused <- struct{}{}
				t.Errorf("got %+v, %v", st, err)
			}
		})
	}
	for running, left := 0, asked-most; left > 0 && running <= most; {
		select {
		case <-up:
			running++
		case <-refused:
			left--
		}
	}
	release.Close()
	wg.Wait()
	if ran != most || busy != asked-most {
		t.Errorf("%d ran, %d were told to wait, %d otherwise; want %d and %d", ran, busy, other, most, asked-most)
	}
	// Those that were refused hold no place: as many run at once again.
	hold, release = io.Pipe()
	started := make(chan struct{}, 2*most)
	for range most {
		wg.Go(func() {
			o := agentclient.ExecOptions{Argv: []string{"sh", "-c", "echo up; cat"}, Stdin: hold, Stdout: notice{started}}
			if st, err := s.Exec(t.Context(), o); err != nil || st.Code != 0 {
				t.Errorf("after the refusals: %+v, %v", st, err)
				started <- struct{}{} // nothing else may come
			}
		})
	}
	for range most {
		<-started
	}
	release.Close()
	wg.Wait()
}

// notice tells that something was written.
type notice struct{ to chan<- struct{} }

func (n notice) Write(b []byte) (int, error) {
	n.to <- struct{}{}
	return len(b), nil
}

func TestExecAsAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("only root can start a process as another user: run the tests as root, as CI does")
	}
	s := dial(t, agentclient.Options{})
	for user, want := range map[string]string{
		"nobody":     "65534 65534\n",
		"1234:567":   "1234 567\n",
		"1234":       "1234 0\n",
		"nobody:tty": "65534 5\n",
		"":           "0 0\n",
	} {
		o := script("echo hello > /dev/stdout; echo $(id -u) $(id -g)")
		o.User = user
		if got := s.run(t, o); got.out != "hello\n"+want {
			t.Errorf("user %q: got %+v, want %q", user, got, want)
		}
	}
}
