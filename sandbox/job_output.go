package sandbox

import (
	"fmt"

	"github.com/msb-project/msb/internal/joblog"
)

// JobOutput is a part of a job's output.
type JobOutput struct {
	// Data is what was written, both streams in order.
	Data []byte
	// Missing is how many bytes before Data are missing, as in LogEntry.
	Missing int64
	// Next is the offset of the first byte after Data, where the next part begins.
	Next int64
}

// OutputSize is how many bytes the job wrote so far, including missing ones.
func (j *Job) OutputSize() (int64, error) {
	st, err := j.Status()
	if err != nil {
		return 0, err
	}
	n, err := joblog.Size(j.dir, j.name)
	if err != nil {
		return 0, Fail(fmt.Errorf("%w: %w; `msb job rm` removes it", ErrState, err))
	}
	return max(n, st.OutputBytes), nil
}

// Output is at most most bytes of the job's output, from offset from on. It doesn't read what comes long before, doesn't
// wait, and ends before missing bytes.
func (j *Job) Output(from int64, most int) (JobOutput, error) {
	st, err := j.Status()
	if err != nil {
		return JobOutput{}, err
	}
	data, missing, err := joblog.ReadFrom(j.dir, j.name, max(from, 0), most)
	if err != nil {
		return JobOutput{}, Fail(fmt.Errorf("%w: %w; `msb job rm` removes it", ErrState, err))
	}
	o := JobOutput{Data: data, Missing: missing, Next: max(from, 0) + missing + int64(len(data))}
	if st.State != JobRunning && len(data) == 0 && st.OutputBytes > o.Next { // the host's disk had no room for the end
		o.Missing += st.OutputBytes - o.Next
		o.Next = st.OutputBytes
	}
	return o, nil
}
