package state

import (
	"time"

	"github.com/msb-project/msb/agentd/agentclient"
)

// Again is what a supervisor needs to go on in a new machine after its guest has ended by itself.
type Again struct {
	Main MainRun `json:"main"`
	// EgressUsed is how much of the policy's egress_bytes earlier runs used: a guest must not get it back by a crash.
	EgressUsed int64 `json:"egress_used,omitempty"`
}

// MainRun is a main command that is to be run again. The fields behind Restarts are those of agentclient.ExecOptions.
type MainRun struct {
	Job StoredJob `json:"job"`
	// Restarts counts the coming run too, and has the pause before it.
	Restarts Restarts `json:"restarts"`

	Argv     []string             `json:"argv"`
	Env      []string             `json:"env,omitempty"`
	Dir      string               `json:"dir,omitempty"`
	MakeDir  bool                 `json:"make_dir,omitempty"`
	User     string               `json:"user,omitempty"`
	Timeout  time.Duration        `json:"timeout,omitempty"`
	Rlimits  []agentclient.Rlimit `json:"rlimits,omitempty"`
	TTY      bool                 `json:"tty,omitempty"`
	Size     agentclient.Size     `json:"size,omitzero"`
	JobInput bool                 `json:"job_input,omitempty"`
}

// NewMainRun is a run of the running job j, with those options of o that can be
// stored.
func NewMainRun(j *StoredJob, o *agentclient.ExecOptions, r Restarts) *MainRun {
	return &MainRun{
		Job: *j, Restarts: r, Argv: o.Argv, Env: o.Env, Dir: o.Dir, MakeDir: o.MakeDir, User: o.User, Timeout: o.Timeout,
		Rlimits: o.Rlimits, TTY: o.TTY, Size: o.Size, JobInput: o.JobInput,
	}
}

// Options are those of NewMainRun.
func (m *MainRun) Options() agentclient.ExecOptions {
	return agentclient.ExecOptions{
		Argv: m.Argv, Env: m.Env, Dir: m.Dir, MakeDir: m.MakeDir, User: m.User, Timeout: m.Timeout,
		Rlimits: m.Rlimits, TTY: m.TTY, Size: m.Size, JobInput: m.JobInput,
	}
}
