package sandbox

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/internal/joblog"
	"github.com/msb-project/msb/sandbox/internal/jobkeeper"
)

// attached is an attachment to a job of web, over the protocol.
type attached struct {
	out    *io.PipeReader
	ended  chan error
	status JobStatus
}

func (k *keeps) attach(ctx context.Context, t *testing.T, s *Sandbox, name string, in io.Reader) *attached {
	t.Helper()
	j, err := s.Job(name)
	must(t, err)
	r, w := io.Pipe()
	a := &attached{out: r, ended: make(chan error, 1)}
	begun := make(chan struct{})
	go func() {
		var err error
		a.status, err = j.Attach(ctx, AttachOptions{Stdin: in, Stdout: w, Stderr: w, Attached: func() { close(begun) }})
		_ = w.CloseWithError(err) // so that nobody waits for more
		a.ended <- err
	}()
	<-begun
	return a
}

func (a *attached) expect(t *testing.T, want string) {
	t.Helper()
	buf := make([]byte, len(want))
	if _, err := io.ReadFull(a.out, buf); err != nil || string(buf) != want {
		t.Fatalf("%q, %v; want %q", buf, err, want)
	}
}

// TestAttachedStreamsAreTheJobs: several join at once, each from then on, and the end of one's input is not the job's.
func TestAttachedStreamsAreTheJobs(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	s := k.session(t)
	main, err := s.StartJob(t.Context(), MainJob, ExecOptions{Argv: []string{"cat", "before\n"}, JobInput: true})
	must(t, err)
	eventuallyText(t, main, "before\n")
	watching := k.attach(t.Context(), t, s, MainJob, nil)
	first := k.attach(t.Context(), t, s, MainJob, strings.NewReader("one\n"))
	watching.expect(t, "one\n")
	first.expect(t, "one\n")
	second := k.attach(t.Context(), t, s, MainJob, strings.NewReader("no newline"))
	for _, a := range []*attached{second, first, watching} {
		a.expect(t, "no newline")
	}
	_, err = main.Write(t.Context(), nil, true)
	must(t, err)
	for _, a := range []*attached{watching, first, second} {
		if err := <-a.ended; err != nil || a.status.State != JobExited {
			t.Errorf("%+v, %v", a.status, err)
		}
	}
	if _, err := main.Attach(t.Context(), AttachOptions{}); !errors.Is(err, ErrJobEnded) {
		t.Errorf("to one that has ended: %v", err)
	}
}

// busyOnce takes half of the first input, as for a job that then reads nothing for some seconds.
type busyOnce struct {
	*jobkeeper.Keeper
	was bool
}

func (b *busyOnce) WriteJob(ctx context.Context, id agentclient.JobID, p []byte, eof bool) (int, error) {
	if b.was {
		return b.Keeper.WriteJob(ctx, id, p, eof)
	}
	b.was = true
	n, err := b.Keeper.WriteJob(ctx, id, p[:len(p)/2], false)
	return n, errors.Join(agentclient.ErrBusy, err)
}

// TestAttachedInputWaitsForTheJob: one that takes nothing for a while gets the rest later, and nothing twice.
func TestAttachedInputWaitsForTheJob(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	k.jobs = &busyOnce{Keeper: k.Keeper}
	s := k.session(t)
	main, err := s.StartJob(t.Context(), MainJob, ExecOptions{Argv: []string{"cat"}, JobInput: true})
	must(t, err)
	defer func() { _, _ = main.Write(t.Context(), nil, true) }() // else the job would wait for more where this fails
	a := k.attach(t.Context(), t, s, MainJob, strings.NewReader("first, second\n"))
	a.expect(t, "first, second\n")
	_, err = main.Write(t.Context(), nil, true)
	must(t, err)
	if err := <-a.ended; err != nil {
		t.Error(err)
	}
}

func eventuallyText(t *testing.T, j *Job, want string) {
	t.Helper()
	for text(t, j, LogOptions{}) != want {
		if t.Context().Err() != nil {
			t.Fatal("the output never came")
		}
	}
}

// TestI11_AttachedReadersHoldUpNobody: of two who attached, one reads nothing and one has gone; the job writes more than
// its ring holds, and ends. The twin is the reader in TestAttachedStreamsAreTheJobs.
func TestI11_AttachedReadersHoldUpNobody(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	s := k.session(t)
	more := make(chan string)
	k.Agent = execFunc(func(_ context.Context, o ExecOptions) (ExitStatus, error) {
		o.OnStart()
		for part := range more {
			if _, err := io.WriteString(o.Stdout, part); err != nil {
				return ExitStatus{}, err
			}
		}
		return ExitStatus{Code: 4}, nil
	})
	j := k.run(t, MainJob, "x")
	deaf := k.attach(t.Context(), t, s, MainJob, nil)
	ctx, gone := context.WithCancel(t.Context())
	left := k.attach(ctx, t, s, MainJob, nil)
	gone()
	if err := <-left.ended; !errors.Is(err, context.Canceled) {
		t.Errorf("who left: %v", err)
	}
	more <- strings.Repeat("x", 2*joblog.MaxBytes)
	close(more)
	if st, err := j.Wait(t.Context()); err != nil || st.Code != 4 {
		t.Errorf("%+v, %v", st, err)
	}
	must(t, deaf.out.Close())
	<-deaf.ended
}

// TestAttachEndsWithItsInput's error, and the job runs on: the detach keys are one.
func TestAttachEndsWithItsInput(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	s := k.session(t)
	main, err := s.StartJob(t.Context(), MainJob, ExecOptions{Argv: []string{"drain"}, JobInput: true, TTY: true})
	must(t, err)
	errKeys := errors.New("keys")
	r, w := io.Pipe()
	a := k.attach(t.Context(), t, s, MainJob, r)
	_, err = io.WriteString(w, "typed")
	must(t, err)
	must(t, w.CloseWithError(errKeys))
	if err := <-a.ended; !errors.Is(err, errKeys) {
		t.Errorf("ended with %v", err)
	}
	if st, err := main.Status(); err != nil || st.State != JobRunning || !st.TTY || !st.Input {
		t.Errorf("%+v, %v", st, err)
	}
	_, err = main.Write(t.Context(), nil, true)
	must(t, err)
	must(t, main.Kill(t.Context(), agentclient.SIGTERM))
	if _, err := main.Wait(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestAttachShowsAll that a job has written, of one that runs and of one that has ended. Who left it by the detach keys
// joins the same command again, and sees what it writes from then on.
func TestAttachShowsAll(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	s := k.session(t)
	main, err := s.StartJob(t.Context(), MainJob, ExecOptions{Argv: []string{"cat", "before\n"}, JobInput: true, TTY: true})
	must(t, err)
	eventuallyText(t, main, "before\n")
	r, w := io.Pipe()
	out, outEnd := io.Pipe()
	all := &attached{out: out, ended: make(chan error, 1)}
	go func() {
		_, err := main.Attach(t.Context(), AttachOptions{All: true, Stdin: r, Stdout: outEnd})
		all.ended <- err
	}()
	all.expect(t, "before\n")
	_, err = io.WriteString(w, "typed\n")
	must(t, err)
	all.expect(t, "typed\n")
	must(t, w.CloseWithError(ErrDetach))
	if err := <-all.ended; !errors.Is(err, ErrDetach) {
		t.Errorf("left with %v", err)
	}
	again := k.attach(t.Context(), t, s, MainJob, strings.NewReader("again\n"))
	again.expect(t, "again\n")
	_, err = main.Write(t.Context(), nil, true)
	must(t, err)
	if err := <-again.ended; err != nil {
		t.Error(err)
	}
	var text strings.Builder
	if st, err := main.Attach(t.Context(), AttachOptions{All: true, Stdin: strings.NewReader("late"), Stdout: &text}); err != nil || st.State != JobExited || text.String() != "before\ntyped\nagain\n" {
		t.Errorf("of one that has ended: %q, %+v, %v", text.String(), st, err)
	}
}

// TestJobTerminalsAreResized with the newest size, also of one that takes none meanwhile.
func TestJobTerminalsAreResized(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	s := k.session(t)
	sizes, look := make(chan agentclient.Size, 1), make(chan struct{})
	k.Agent = execFunc(func(_ context.Context, o ExecOptions) (ExitStatus, error) {
		o.OnStart()
		<-look
		sizes <- <-o.Resize
		return ExitStatus{}, nil
	})
	j, err := s.StartJob(t.Context(), MainJob, ExecOptions{Argv: []string{"x"}, TTY: true})
	must(t, err)
	for n := range uint16(5) {
		must(t, j.Resize(t.Context(), agentclient.Size{Rows: n, Cols: 80}))
	}
	close(look)
	if got := <-sizes; got != (agentclient.Size{Rows: 4, Cols: 80}) {
		t.Errorf("%+v", got)
	}
	_, err = j.Wait(t.Context())
	must(t, err)
	if err := j.Resize(t.Context(), agentclient.Size{}); !errors.Is(err, ErrJobEnded) {
		t.Errorf("of one that has ended: %v", err)
	}
}
