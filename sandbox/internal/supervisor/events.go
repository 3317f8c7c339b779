package supervisor

import (
	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/sandbox/internal/jobkeeper"
	"github.com/msb-project/msb/sandbox/internal/state"
)

func (s *supervisor) event(kind audit.Kind, message string) {
	s.emit(audit.Event{Kind: kind, Message: message})
}

func (s *supervisor) emit(e audit.Event) {
	e.Sandbox = s.plan.ID
	s.records.Sink().Emit(e)
}

// record is emit for an event that may only happen once its line is written.
func (s *supervisor) record(e audit.Event) error {
	e.Sandbox = s.plan.ID
	return s.records.Record(e)
}

// execKinds are by agentclient.ExecStage.
var execKinds = [...]audit.Kind{agentclient.ExecCreated: audit.ExecCreate, agentclient.ExecStarted: audit.ExecStart, agentclient.ExecDied: audit.ExecDie}

// execEvent records a client's command.
func (s *supervisor) execEvent(e agentclient.ExecEvent) {
	ev := audit.Event{Kind: execKinds[e.Stage], Exec: e.ID, Program: e.Program, ExitCode: e.Code}
	if e.Container != "" {
		ev.Labels = map[string]string{"container": e.Container}
	}
	s.emit(ev)
}

// jobEvent records what becomes of a job. The main one's is the sandbox's own command, as a container's is.
func (s *supervisor) jobEvent(e jobkeeper.Event) {
	kind := execKinds[e.Stage]
	if e.Job == state.MainJob && e.Stage == agentclient.ExecDied {
		kind = audit.SandboxDie
	}
	if e.Restarts > 0 {
		kind = audit.SandboxRestart
	}
	s.emit(audit.Event{Kind: kind, Job: e.Job, Program: e.Program, ExitCode: e.Code, Count: uint64(e.Restarts)})
}
