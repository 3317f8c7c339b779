package sandbox

import (
	"errors"
	"strings"
	"testing"

	"github.com/msb-project/msb/agentd/agentclient"
)

// TestI13_JobsAreIdentifiedByStart: a job that was removed and made again under its name, between the look at it and the
// call, was killed and removed in its place. The twin means any job of the name.
func TestI13_JobsAreIdentifiedByStart(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	s := k.session(t)
	old := k.run(t, "server", "write", "x")
	_, err := old.Wait(t.Context())
	must(t, err)
	must(t, s.client.RemoveJob(t.Context(), old.id()))
	now := k.run(t, "server", "wait")
	for name, call := range map[string]func(agentclient.JobID) error{
		"kill": func(id agentclient.JobID) error { return s.client.SignalJob(t.Context(), id, agentclient.SIGTERM) },
		"rm":   func(id agentclient.JobID) error { return s.client.RemoveJob(t.Context(), id) },
	} {
		if err := call(old.id()); !errors.Is(err, ErrNoJob) || !strings.Contains(err.Error(), "another job has its name") {
			t.Errorf("%s of the job before: %v", name, err)
		}
	}
	if st, err := now.Status(); err != nil || st.State != JobRunning {
		t.Errorf("%+v, %v; it ran on", st, err)
	}
	must(t, s.client.SignalJob(t.Context(), now.id(), agentclient.SIGTERM))
	st, err := now.Wait(t.Context())
	must(t, err)
	if st.State != JobKilled {
		t.Errorf("%+v", st)
	}
	if err := s.client.RemoveJob(t.Context(), old.id()); !errors.Is(err, ErrNoJob) {
		t.Errorf("it has ended, and rm of the job before: %v", err)
	}
	must(t, s.client.RemoveJob(t.Context(), agentclient.JobID{Name: "server"}))
}
