package sandbox

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/internal/joblog"
	"github.com/msb-project/msb/sandbox/internal/jobkeeper"
)

// TestStreamsOfJobsAreApart: each of the two streams comes as what it is, from an attachment and from a log.
func TestStreamsOfJobsAreApart(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	s := k.session(t)
	j, err := s.StartJob(t.Context(), "a", ExecOptions{Argv: []string{"write", "out\n", "Err\n"}})
	must(t, err)
	_, err = j.Wait(t.Context())
	must(t, err)
	var stdout, stderr bytes.Buffer
	if _, err := j.Attach(t.Context(), AttachOptions{All: true, Stdout: &stdout, Stderr: &stderr}); err != nil || stdout.String() != "out\n" || stderr.String() != "Err\n" {
		t.Errorf("attached: %q and %q, %v", stdout.String(), stderr.String(), err)
	}
	stderr.Reset()
	if _, err := j.Attach(t.Context(), AttachOptions{All: true, Stderr: &stderr}); err != nil || stderr.String() != "Err\n" {
		t.Errorf("attached to one of both: %q, %v", stderr.String(), err)
	}
	l, err := j.Logs(t.Context(), LogOptions{})
	must(t, err)
	defer func() { _ = l.Close() }()
	for _, want := range []LogEntry{{Data: []byte("out\n")}, {Data: []byte("Err\n"), Stderr: true}} {
		if e, err := l.Next(); err != nil || string(e.Data) != string(want.Data) || e.Stderr != want.Stderr {
			t.Errorf("logged: %+v, %v; want %+v", e, err, want)
		}
	}
}

// TestAttachedReadersAreToldOfGaps: output that the ring has dropped is counted, and nothing else is.
func TestAttachedReadersAreToldOfGaps(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	s := k.session(t)
	k.run(t, "a", "write", strings.Repeat("x", 2*joblog.MaxBytes), "end")
	j, err := s.Job("a")
	must(t, err)
	st, err := j.Wait(t.Context())
	must(t, err)
	var out bytes.Buffer
	var missing int64
	_, err = j.Attach(t.Context(), AttachOptions{All: true, Stdout: &out, Stderr: &out, Missing: func(n int64) { missing += n }})
	if got := missing + int64(out.Len()); err != nil || missing == 0 || got != st.OutputBytes {
		t.Errorf("%d bytes and %d missing, of %d; %v", out.Len(), missing, st.OutputBytes, err)
	}
}

// TestAttachEndsWithItsWriter's error, and so does its input: what is typed then is not for the job.
func TestAttachEndsWithItsWriter(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	s := k.session(t)
	j, err := s.StartJob(t.Context(), "a", ExecOptions{Argv: []string{"cat", "before\n"}, JobInput: true})
	must(t, err)
	eventuallyText(t, j, "before\n")
	broken := errors.New("broken pipe")
	in, typed := io.Pipe()
	out, outEnd := io.Pipe()
	must(t, out.CloseWithError(broken))
	if _, err := j.Attach(pausing(t, func() {}), AttachOptions{All: true, Stdin: in, Stdout: outEnd}); !errors.Is(err, broken) {
		t.Errorf("ended with %v", err)
	}
	_, err = io.WriteString(typed, "late\n")
	must(t, err)
	must(t, typed.Close())
	if _, err := in.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("the input: %v", err)
	}
	_, err = j.Write(t.Context(), []byte("on\n"), true)
	must(t, err)
	_, err = j.Wait(t.Context())
	must(t, err)
	if got := text(t, j, LogOptions{}); got != "before\non\n" {
		t.Errorf("the job has read %q", got)
	}
}

// unread fails a test in which it is read.
type unread struct{ t *testing.T }

func (r unread) Read([]byte) (int, error) {
	r.t.Error("the input was read")
	return 0, io.EOF
}

// TestAttachReadsNoInputInVain: of a job that takes none, the caller's input is left to whoever reads it next.
func TestAttachReadsNoInputInVain(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	s := k.session(t)
	_, err := s.StartJob(t.Context(), "a", ExecOptions{Argv: []string{"wait"}})
	must(t, err)
	a := k.attach(t.Context(), t, s, "a", unread{t})
	k.end(t, "a")
	if err := <-a.ended; err != nil || a.status.State != JobKilled {
		t.Errorf("%+v, %v", a.status, err)
	}
}

// takesNone answers every input with an error.
type takesNone struct {
	*jobkeeper.Keeper
	err   error
	asked chan struct{}
}

func (n takesNone) WriteJob(context.Context, agentclient.JobID, []byte, bool) (int, error) {
	n.asked <- struct{}{}
	return 0, n.err
}

// TestAttachSurvivesInputThatNobodyTakes: between two runs of --restart, or when the job has just ended, input is dropped and
// the output goes on. Any other error of the input ends the attachment.
func TestAttachSurvivesInputThatNobodyTakes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		ends bool
	}{{ErrJobInput, false}, {ErrJobEnded, false}, {agentclient.ErrRefused, true}} {
		k := newKeeper(t)
		asked := make(chan struct{}, 1)
		k.jobs = takesNone{k.Keeper, c.err, asked}
		s := k.session(t)
		_, err := s.StartJob(t.Context(), "a", ExecOptions{Argv: []string{"wait"}, JobInput: true})
		must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		r, w := io.Pipe()
		a := k.attach(ctx, t, s, "a", r)
		for range 2 { // the second is read when the first is dealt with
			if _, err = io.WriteString(w, "x"); err != nil {
				break
			}
			<-asked
			if c.ends {
				break
			}
		}
		if !c.ends {
			k.end(t, "a")
		}
		if err := <-a.ended; c.ends && !errors.Is(err, c.err) || !c.ends && (err != nil || a.status.State != JobKilled) {
			t.Errorf("%v: %+v, %v", c.err, a.status, err)
		}
		cancel()
		must(t, r.Close())
	}
}

// TestDamagedOutputIsReported by an attachment and by each way to read it.
func TestDamagedOutputIsReported(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	s := k.session(t)
	j, err := s.StartJob(t.Context(), "a", ExecOptions{Argv: []string{"write", "x\n"}})
	must(t, err)
	_, err = j.Wait(t.Context())
	must(t, err)
	must(t, os.WriteFile(filepath.Join(k.Dir, "a.0.log"), []byte(strings.Repeat("\xff", 100)), 0o600))
	_, attached := j.Attach(t.Context(), AttachOptions{All: true})
	_, output := j.Output(0, 10)
	_, tail := j.Logs(t.Context(), LogOptions{Tail: 1})
	for what, err := range map[string]error{"attach": attached, "output": output, "logs -n": tail} {
		if !errors.Is(err, ErrState) || !errors.Is(err, joblog.ErrDamaged) || !strings.Contains(err.Error(), "msb job rm") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestI11_LogsEndWhereTheyBegan: a log that isn't followed has an end, however fast the job writes.
func TestI11_LogsEndWhereTheyBegan(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	j := k.run(t, "a", "wait", "before\n")
	eventuallyText(t, j, "before\n")
	l, err := j.Logs(t.Context(), LogOptions{})
	must(t, err)
	defer func() { _ = l.Close() }()
	w, err := joblog.Resume(k.Dir, "a", int64(len("before\n")), 0)
	must(t, err)
	_, err = io.WriteString(w.Stream(joblog.Stdout), "after\n")
	must(t, errors.Join(err, w.Close()))
	if got := text(t, j, LogOptions{}); got != "before\nafter\n" {
		t.Fatalf("the job's output is %q", got)
	}
	if all, err := io.ReadAll(l); err != nil || string(all) != "before\n" {
		t.Errorf("%q, %v", all, err)
	}
}

// TestLogsEndWithTheirContext, also one that has lines to read.
func TestLogsEndWithTheirContext(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	j := k.run(t, "a", "write", "one\ntwo\n")
	_, err := j.Wait(t.Context())
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	l, err := j.Logs(ctx, LogOptions{})
	must(t, err)
	defer func() { _ = l.Close() }()
	_, err = l.Next()
	must(t, err)
	cancel()
	if e, err := l.Next(); !errors.Is(err, context.Canceled) {
		t.Errorf("%q, %v", e.Data, err)
	}
	if _, err := j.Logs(ctx, LogOptions{Tail: 1}); !errors.Is(err, context.Canceled) {
		t.Errorf("a tail: %v", err)
	}
}

// TestLogsAreReaders: a reader of small parts gets all, and lines of the very moment of Since are among them.
func TestLogsAreReaders(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	j := k.run(t, "a", "write", "one\ntwo\n", "end")
	_, err := j.Wait(t.Context())
	must(t, err)
	l, err := j.Logs(t.Context(), LogOptions{})
	must(t, err)
	if b, err := io.ReadAll(iotest.OneByteReader(l)); err != nil || string(b) != "one\ntwo\nend" {
		t.Errorf("byte by byte: %q, %v", b, err)
	}
	must(t, l.Close())
	l, err = j.Logs(t.Context(), LogOptions{})
	must(t, err)
	first, err := l.Next()
	must(t, errors.Join(err, l.Close()))
	if got := text(t, j, LogOptions{Since: first.Time}); got != "one\ntwo\nend" {
		t.Errorf("since the first line: %q", got)
	}
}

// TestLostOutputIsCounted where the host's disk has no room for the end of a job's output: by a log that follows the job, and
// by those who read parts.
func TestLostOutputIsCounted(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	var room atomic.Int64
	room.Store(1 << 40)
	k.Room = func() (int64, error) { return room.Load(), nil }
	more := make(chan string)
	k.Agent = execFunc(func(_ context.Context, o ExecOptions) (ExitStatus, error) {
		o.OnStart()
		for part := range more {
			_, _ = io.WriteString(o.Stdout, part)
		}
		return ExitStatus{}, nil
	})
	j := k.run(t, "a", "x")
	more <- "kept\n"
	eventuallyText(t, j, "kept\n")
	l, err := j.Logs(t.Context(), LogOptions{Follow: true})
	must(t, err)
	defer func() { _ = l.Close() }()
	if e, err := l.Next(); err != nil || string(e.Data) != "kept\n" {
		t.Fatalf("%+v, %v", e, err)
	}
	room.Store(0)
	more <- strings.Repeat("x", joblog.MaxBytes)
	close(more)
	st, err := j.Wait(t.Context())
	must(t, err)
	if st.LostBytes == 0 {
		t.Fatalf("nothing is lost: %+v", st)
	}
	var kept, missing int64 = 5, 0
	for {
		e, err := l.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		must(t, err)
		kept, missing = kept+int64(len(e.Data)), missing+e.Missing
	}
	if missing != st.LostBytes || kept+missing != st.OutputBytes {
		t.Errorf("followed: %d bytes and %d missing, of %+v", kept, missing, st)
	}
	if n, err := j.OutputSize(); n != st.OutputBytes || err != nil {
		t.Errorf("%d bytes in all, %v; want %d", n, err, st.OutputBytes)
	}
	o, err := j.Output(kept, 100)
	if err != nil || len(o.Data) != 0 || o.Missing != missing || o.Next != st.OutputBytes {
		t.Errorf("the part behind what is kept: %+v, %v", o, err)
	}
}

// TestPartsOfRunningJobsGrow: what a job that runs has written so far can be read and counted, and the part behind it is
// empty.
func TestPartsOfRunningJobsGrow(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	j := k.run(t, "a", "wait", strings.Repeat("x", 2*joblog.MaxBytes), "end")
	for end := ""; end != "end"; {
		n, err := j.OutputSize()
		must(t, err)
		o, err := j.Output(max(n-3, 0), 3)
		must(t, err)
		end = string(o.Data)
	}
	const all = 2*joblog.MaxBytes + 3
	if n, err := j.OutputSize(); n != all || err != nil {
		t.Errorf("%d bytes, %v; want %d", n, err, all)
	}
	o, err := j.Output(0, 100)
	if err != nil || o.Missing == 0 || o.Next != o.Missing+int64(len(o.Data)) {
		t.Errorf("from the beginning, which the ring has dropped: %d bytes, %d missing, next %d; %v", len(o.Data), o.Missing, o.Next, err)
	}
	if o, err := j.Output(all, 100); err != nil || len(o.Data) != 0 || o.Missing != 0 || o.Next != all {
		t.Errorf("behind the end: %+v, %v", o, err)
	}
	k.end(t, "a")
}
