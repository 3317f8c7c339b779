package agentclient

import (
	"bytes"
	"context"
	"testing"
)

// takingJobs notes what comes to a job's standard input.
type takingJobs struct {
	JobServer
	took  []byte
	ended int // how much had come when it ended; -1 while it is open
}

func (j *takingJobs) WriteJob(_ context.Context, _ JobID, p []byte, eof bool) (int, error) {
	if j.ended >= 0 {
		return 0, ErrJobInput
	}
	j.took = append(j.took, p...)
	if eof {
		j.ended = len(j.took)
	}
	return len(p), nil
}

// TestLongInputOfJobsEndsBehindItsLastByte: it goes in several messages, of which the last one alone ends it.
func TestLongInputOfJobsEndsBehindItsLastByte(t *testing.T) {
	t.Parallel()
	for _, length := range []int{0, 1, maxJobInput, maxJobInput + 1, 3*maxJobInput - 1} {
		for _, eof := range []bool{true, false} {
			j := &takingJobs{ended: -1}
			c := serving(t, dialFake(t, &fakeAgent{}), Services{Jobs: j})
			text := bytes.Repeat([]byte("input\n"), length/6+1)[:length]
			n, err := c.WriteJob(t.Context(), JobID{Name: "a"}, text, eof)
			want := -1
			if eof {
				want = length
			}
			if err != nil || n != length || !bytes.Equal(j.took, text) || j.ended != want {
				t.Errorf("%d bytes, end %t: %d written, %d taken, ended at %d, %v", length, eof, n, len(j.took), j.ended, err)
			}
		}
	}
}
