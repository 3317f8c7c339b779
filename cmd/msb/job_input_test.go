package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/msb-project/msb/sandbox"
)

// slowJob takes three bytes at a time, and nothing each second time it is asked.
type slowJob struct {
	got   bytes.Buffer
	calls int
	ended bool
}

func (j *slowJob) Write(_ context.Context, p []byte, eof bool) (int, error) {
	if j.calls++; j.calls%2 == 0 {
		return 0, sandbox.ErrBusy
	}
	n := min(3, len(p))
	j.got.Write(p[:n])
	if n < len(p) {
		return n, sandbox.ErrBusy
	}
	j.ended = j.ended || eof
	return n, nil
}

func TestInputWaitsForItsReader(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "x", "several words of text"} {
		for _, eof := range []bool{false, true} {
			var j slowJob
			if err := feedJob(t.Context(), &j, strings.NewReader(text), eof); err != nil || j.got.String() != text || j.ended != eof {
				t.Errorf("%q, eof %v: got %q, ended %v, %v", text, eof, j.got.String(), j.ended, err)
			}
		}
	}
	failed := errors.New("input failed")
	if err := feedJob(t.Context(), &slowJob{}, io.MultiReader(strings.NewReader("x"), failing{failed}), true); !errors.Is(err, failed) {
		t.Errorf("%v", err)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
