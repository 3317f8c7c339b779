package jobkeeper

import (
	"errors"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// Event says what becomes of a job.
type Event struct {
	Stage agentclient.ExecStage
	Job   string
	// Program is the first word of the job's command.
	Program string
	// Code is that of agentclient.ExecDied; nil of a job that is lost.
	Code *int
	// Restarts is the number of the restart that is about to come; 0 for every other event.
	Restarts int
}

func (k *Keeper) event(j *state.StoredJob, stage agentclient.ExecStage, code *int) {
	if k.Event != nil {
		k.Event(Event{Stage: stage, Job: j.Name, Program: program(j), Code: code})
	}
}

func program(j *state.StoredJob) string {
	if len(j.Command) == 0 {
		return ""
	}
	return j.Command[0]
}

// died reports how a run ended.
func (k *Keeper) died(j *state.StoredJob, st agentclient.ExitStatus, err error) {
	var not *state.NotStartedError
	if err != nil && !errors.As(err, &not) {
		k.event(j, agentclient.ExecDied, nil)
		return
	}
	k.event(j, agentclient.ExecDied, &st.Code)
}

// restarts reports that the command is about to be run again.
func (k *Keeper) restarts(j *state.StoredJob) {
	if k.Event != nil {
		k.Event(Event{Job: j.Name, Program: program(j), Restarts: j.Restarts})
	}
}
