package main

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/sandbox"
)

// stubbornJob is one whose end the guest reports, or never.
type stubbornJob struct {
	reported bool
	lost     bool // its sandbox ended
	calls    []string
}

func (j *stubbornJob) Name() string { return "build" }

func (j *stubbornJob) Kill(context.Context, agentclient.Signal) error {
	j.calls = append(j.calls, "kill")
	return nil
}

func (j *stubbornJob) Wait(ctx context.Context) (sandbox.JobStatus, error) {
	j.calls = append(j.calls, "wait")
	if j.lost {
		return sandbox.JobStatus{}, sandbox.ErrJobLost
	}
	if j.reported {
		return sandbox.JobStatus{}, nil
	}
	<-ctx.Done()
	return sandbox.JobStatus{}, ctx.Err()
}

func (j *stubbornJob) Remove(context.Context) error {
	j.calls = append(j.calls, "remove")
	return nil
}

// TestOnlyEndedJobsHaveExitCodes: a program that reads the list takes 0 for a job that has ended well.
func TestOnlyEndedJobsHaveExitCodes(t *testing.T) {
	t.Parallel()
	for state, want := range map[sandbox.JobState]bool{
		sandbox.JobRunning: false, sandbox.JobExited: true, sandbox.JobKilled: true, sandbox.JobLost: false, sandbox.JobDamaged: false,
	} {
		text, err := json.Marshal(listJob(&sandbox.JobStatus{Name: "a", State: state}))
		if has := strings.Contains(string(text), `"exit_code":0`); err != nil || has != want || strings.Count(string(text), "exit_code") > 1 {
			t.Errorf("%s: %s, %v", state, text, err)
		}
	}
}

// TestI11_ForcedJobRemovalIsBounded: a guest that never reports the end of a job that was killed does not hold msb,
// and the job stays. The twins are a job that ends, and a user who doesn't wait.
func TestI11_ForcedJobRemovalIsBounded(t *testing.T) {
	t.Parallel()
	interrupted, cancel := context.WithCancel(t.Context())
	cancel()
	for what, c := range map[string]struct {
		ctx   context.Context
		job   stubbornJob
		limit time.Duration
		want  error
	}{
		"never reported": {t.Context(), stubbornJob{}, time.Nanosecond, sandbox.ErrJobRunning},
		"reported":       {t.Context(), stubbornJob{reported: true}, time.Hour, nil},
		"lost":           {t.Context(), stubbornJob{lost: true}, time.Hour, nil},
		"interrupted":    {interrupted, stubbornJob{}, time.Hour, context.Canceled},
	} {
		if err := killAndRemove(c.ctx, &c.job, c.limit); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", what, err, c.want)
		}
		if removed := slices.Contains(c.job.calls, "remove"); removed != (c.want == nil) {
			t.Errorf("%s: %v", what, c.job.calls)
		}
	}
}
