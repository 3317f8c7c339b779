package supervisor

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/sandbox/internal/jobkeeper"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// TestLifecycleLinesAreWritten: what becomes of a sandbox and its commands is in its audit log, and for one that goes with
// its run that too.
func TestLifecycleLinesAreWritten(t *testing.T) {
	t.Parallel()
	for _, temporary := range []bool{true, false} {
		p := newPlan(t, t.TempDir(), "web")
		p.AutoRemove, p.Audit = temporary, filepath.Join(t.TempDir(), "audit.jsonl")
		s, info := superviseFake(t, &guestVM{}, p)
		if info == nil {
			t.Fatal(<-s.ended)
		}
		s.execEvent(agentclient.ExecEvent{Stage: agentclient.ExecDied, ID: 1, Program: "sh", Code: new(0)})
		s.jobEvent(jobkeeper.Event{Stage: agentclient.ExecStarted, Job: state.MainJob, Program: "run"})
		s.jobEvent(jobkeeper.Event{Stage: agentclient.ExecDied, Job: "other", Program: "run", Code: new(2)})
		s.jobEvent(jobkeeper.Event{Stage: agentclient.ExecDied, Job: state.MainJob, Program: "run", Code: new(3)})
		s.jobEvent(jobkeeper.Event{Job: state.MainJob, Program: "run", Restarts: 4})
		s.cancel(errCallerGone)
		if err := <-s.ended; err != nil {
			t.Error(err)
		}
		b, err := os.ReadFile(p.Audit)
		must(t, err)
		got := regexp.MustCompile(`"time":"[^"]*","sandbox":"web",`).ReplaceAllString(string(b), "")
		want := []string{
			`{"kind":"sandbox.start"}`,
			`{"kind":"exec.die","exec":1,"program":"sh","exit_code":0}`,
			`{"kind":"exec.start","job":"main","program":"run"}`,
			`{"kind":"exec.die","job":"other","program":"run","exit_code":2}`,
			`{"kind":"sandbox.die","job":"main","program":"run","exit_code":3}`,
			`{"kind":"sandbox.restart","count":4,"job":"main","program":"run"}`,
			`{"kind":"sandbox.stop"}`,
		}
		if temporary {
			want = append(want, `{"kind":"sandbox.remove"}`)
		}
		if got != strings.Join(want, "\n")+"\n" {
			t.Errorf("temporary %v: %s", temporary, got)
		}
	}
}
