package sandbox

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/msb-project/msb/agentd/agentclient"
)

// TestJobsTakeInput: bytes come in order over the protocol, and end of file when it is said.
func TestJobsTakeInput(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	s := k.session(t)
	j, err := s.StartJob(t.Context(), "cat", ExecOptions{Argv: []string{"cat"}, JobInput: true})
	must(t, err)
	large := strings.Repeat("0123456789", 20_000)
	for _, part := range []string{"one\n", large, ""} {
		if n, err := j.Write(t.Context(), []byte(part), part == ""); n != len(part) || err != nil {
			t.Fatalf("%d of %d bytes taken: %v", n, len(part), err)
		}
	}
	if _, err := j.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := text(t, j, LogOptions{}); got != "one\n"+large {
		t.Errorf("%d bytes of %d came, from %.20q on", len(got), 4+len(large), got)
	}
	if _, err := j.Write(t.Context(), []byte("x"), false); !errors.Is(err, ErrJobEnded) {
		t.Errorf("behind its end: %v", err)
	}
}

func TestJobsWithoutInputRefuseIt(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	s := k.session(t)
	plain, err := s.StartJob(t.Context(), "", ExecOptions{Argv: []string{"wait"}})
	must(t, err)
	if _, err := plain.Write(t.Context(), []byte("x"), false); !errors.Is(err, ErrJobInput) || !strings.Contains(err.Error(), "-i") {
		t.Errorf("a job without: %v", err)
	}
	ended, err := s.StartJob(t.Context(), "", ExecOptions{Argv: []string{"drain"}, JobInput: true})
	must(t, err)
	_, err = ended.Write(t.Context(), nil, true)
	must(t, err)
	if _, err := ended.Write(t.Context(), []byte("x"), false); !errors.Is(err, ErrJobInput) {
		t.Errorf("behind its end of file: %v", err)
	}
}

// TestI11_UnreadInputBlocksTheWriter: nothing of it piles up, a writer that gives up frees the way, and so does the
// job's end.
func TestI11_UnreadInputBlocksTheWriter(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	s := k.session(t)
	j, err := s.StartJob(t.Context(), "", ExecOptions{Argv: []string{"wait"}, JobInput: true})
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if n, err := j.Write(ctx, []byte("x"), false); n != 0 || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a writer that gave up: %d, %v", n, err)
	}
	writes := make(chan error)
	go func() { _, err := j.Write(t.Context(), []byte("x"), false); writes <- err }()
	must(t, j.Kill(t.Context(), agentclient.SIGKILL))
	if err := <-writes; !errors.Is(err, ErrJobEnded) {
		t.Errorf("the job ended: %v", err)
	}
}

func TestUnreadInputIsReported(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	j, err := k.session(t).StartJob(t.Context(), "", ExecOptions{Argv: []string{"wait"}, JobInput: true})
	must(t, err)
	if n, err := j.Write(t.Context(), []byte("x"), false); n != 0 || !errors.Is(err, ErrBusy) {
		t.Errorf("%d, %v", n, err)
	}
}
