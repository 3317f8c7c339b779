package agentclient

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/msb-project/msb/agentd/agentpb"
)

// notedJobs notes what it is asked for.
type notedJobs struct {
	o     ExecOptions
	calls []string
	err   error
}

func (n *notedJobs) note(what string, id JobID, more ...any) error {
	n.calls = append(n.calls, fmt.Sprint(what, " ", id.Name, " ", id.started(), more))
	return n.err
}

func (n *notedJobs) StartJob(_ context.Context, name string, o ExecOptions) (string, error) {
	n.o = o
	return name + "-1", n.err
}
func (n *notedJobs) SignalJob(_ context.Context, id JobID, s Signal) error {
	return n.note("signal", id, s)
}
func (n *notedJobs) WriteJob(_ context.Context, id JobID, p []byte, eof bool) (int, error) {
	return len(p), n.note("write", id, string(p), eof)
}
func (n *notedJobs) ResizeJob(_ context.Context, id JobID, s Size) error {
	return n.note("resize", id, s)
}
func (n *notedJobs) RemoveJob(_ context.Context, id JobID) error { return n.note("remove", id) }

// TestJobsAreStartedAsAsked: each option of a process comes to the supervisor that a job can have.
func TestJobsAreStartedAsAsked(t *testing.T) {
	t.Parallel()
	jobs := &notedJobs{}
	c := serving(t, dialFake(t, &fakeAgent{}), Services{Jobs: jobs})
	want := ExecOptions{
		Argv: []string{"make", "all"}, AgentsOwn: true, Env: []string{"A=b"}, Dir: "/src", MakeDir: true, User: "web:logs", Timeout: 90 * time.Second,
		Rlimits: []Rlimit{{"nofile", 1, 2}, {"core", 3, 4}}, TTY: true, Size: Size{Rows: 5, Cols: 6}, JobInput: true,
	}
	for i := range reflect.TypeFor[ExecOptions]().NumField() {
		streams := []string{"Stdin", "Stdout", "Stderr", "Container", "OnStart", "Tell", "Resize", "Signals"}
		if f := reflect.TypeFor[ExecOptions]().Field(i).Name; reflect.ValueOf(want).Field(i).IsZero() && !slices.Contains(streams, f) {
			t.Errorf("%s is not compared", f)
		}
	}
	name, err := c.StartJob(t.Context(), "build", want)
	if err != nil || name != "build-1" || !reflect.DeepEqual(jobs.o, want) {
		t.Errorf("%q, %v; got %+v, want %+v", name, err, jobs.o, want)
	}
	if _, err := c.StartJob(t.Context(), "", ExecOptions{Argv: []string{"true"}}); err != nil || !reflect.DeepEqual(jobs.o, ExecOptions{Argv: []string{"true"}}) {
		t.Errorf("%v; got %+v", err, jobs.o)
	}
}

// TestCallsAreForOneJob of those that have had its name one after another.
func TestCallsAreForOneJob(t *testing.T) {
	t.Parallel()
	for started, at := range map[time.Time]string{time.Unix(1, 23): "1000000023", {}: "0"} {
		jobs := &notedJobs{}
		c := serving(t, dialFake(t, &fakeAgent{}), Services{Jobs: jobs})
		id := JobID{Name: "a", Started: started}
		_, err := c.WriteJob(t.Context(), id, []byte("x"), true)
		if err := errors.Join(err, c.SignalJob(t.Context(), id, SIGTERM), c.ResizeJob(t.Context(), id, Size{Rows: 1, Cols: 2}), c.RemoveJob(t.Context(), id)); err != nil {
			t.Error(err)
		}
		want := []string{"write a " + at + " [x true]", "signal a " + at + " [15]", "resize a " + at + " [{1 2}]", "remove a " + at + " []"}
		if !slices.Equal(jobs.calls, want) {
			t.Errorf("got %q, want %q", jobs.calls, want)
		}
	}
}

// TestErrorsOfJobsComeBack as what they are, with their words.
func TestErrorsOfJobsComeBack(t *testing.T) {
	t.Parallel()
	jobs := &notedJobs{}
	c := serving(t, dialFake(t, &fakeAgent{}), Services{Jobs: jobs})
	full := fmt.Errorf("%w: write it: %w", ErrJobFiles, syscall.ENOSPC)
	for _, want := range []error{ErrJobName, ErrJobExists, ErrNoJob, ErrJobRunning, ErrJobEnded, ErrJobLimit, ErrJobFiles, ErrRefused, ErrBusy, ErrJobInput, full} {
		jobs.err = fmt.Errorf("%w", want)
		err := c.RemoveJob(t.Context(), JobID{Name: "a"})
		if err == nil || err.Error() != want.Error() {
			t.Errorf("%q: %v", want, err)
		}
		for _, other := range []error{ErrJobName, ErrJobExists, ErrNoJob, ErrJobRunning, ErrJobEnded, ErrJobLimit, ErrJobFiles, ErrRefused, ErrBusy, ErrJobInput, syscall.ENOSPC} {
			if errors.Is(err, other) != errors.Is(want, other) {
				t.Errorf("%q is %q: %t", want, other, errors.Is(err, other))
			}
		}
	}
	for _, want := range []ExitStatus{{Code: 127, StartError: NotFound, Message: "x: not found"}, {Code: 126, StartError: NotExecutable, Message: "x: a directory"}} {
		jobs.err = &NotStartedError{Status: want}
		_, err := c.StartJob(t.Context(), "a", ExecOptions{Argv: []string{"x"}})
		if not := (*NotStartedError)(nil); !errors.As(err, &not) || not.Status != want {
			t.Errorf("got %+v, want %+v", err, want)
		}
	}
	jobs.err = nil
	r, err := c.jobs.WriteJob(t.Context(), &agentpb.WriteJobRequest{Name: "a", Data: []byte(strings.Repeat("x", maxJobInput+1))})
	if err != nil || r.GetResult().GetError() != agentpb.JobError_JOB_ERROR_REFUSED || r.GetWritten() != 0 {
		t.Errorf("a message of more than there may be: %v, %v", r, err)
	}
}

// TestDirectoriesAreAttachedAsAsked is about the one message that says how.
func TestDirectoriesAreAttachedAsAsked(t *testing.T) {
	t.Parallel()
	asked := &attachedDirectory{}
	d := &Directory{c: &Client{dirs: asked}, ctx: t.Context()}
	if err := d.attach(DirectoryOptions{Path: "/src", ReadOnly: true, CopyOnWrite: true, Number: 7, User: "web"}); err != nil || d.UID != 33 || d.GID != 34 {
		t.Errorf("%d:%d, %v", d.UID, d.GID, err)
	}
	want := &agentpb.AttachRequest{Path: "/src", ReadOnly: true, CopyOnWrite: true, Number: 7, User: "web"}
	if !proto.Equal(asked.r, want) {
		t.Errorf("got %v, want %v", asked.r, want)
	}
}

type attachedDirectory struct {
	agentpb.DirectoriesClient
	agentpb.Directories_AttachClient
	r *agentpb.AttachRequest
}

func (a *attachedDirectory) Attach(_ context.Context, r *agentpb.AttachRequest, _ ...grpc.CallOption) (agentpb.Directories_AttachClient, error) {
	a.r = r
	return a, nil
}

func (a *attachedDirectory) Recv() (*agentpb.AttachResponse, error) {
	return &agentpb.AttachResponse{Uid: 33, Gid: 34}, nil
}
