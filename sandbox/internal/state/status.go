package state

import (
	"encoding/json"
	"io"
	"sync"

	"github.com/msb-project/msb/audit"
)

// StatusLines writes status lines, from any goroutine.
type StatusLines struct {
	mu  sync.Mutex
	out *json.Encoder
}

// NewStatusLines writes them to w.
func NewStatusLines(w io.Writer) *StatusLines { return &StatusLines{out: json.NewEncoder(w)} }

func (l *StatusLines) Write(s StatusLine) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.Encode(s)
}

// StatusLine is one line from the supervisor; exactly one field is set.
type StatusLine struct {
	// Notice is a sentence for the user: before the guest boots, and when a changed policy was taken or refused.
	Notice string `json:"notice,omitempty"`
	// Ready says that commands may be run.
	Ready *Info `json:"ready,omitempty"`
	// Denied sums up, when the sandbox ends, what was denied.
	Denied *audit.DenialSummary `json:"denied,omitempty"`
	// Failed says why the sandbox did not start, or why it ended by itself.
	Failed *Failed `json:"failed,omitempty"`
}

type Failed struct {
	Kind    Kind   `json:"kind"`
	Message string `json:"message"`
}

// Info is what a started sandbox says of itself.
type Info struct {
	ID      string `json:"id"`
	Backend string `json:"backend"`
	// Kernel is the guest's release, as the guest reports it.
	Kernel string `json:"kernel"`
	// CPUs and Memory, in bytes, are the machine's; 0 if an msb of before started it.
	CPUs   int   `json:"cpus,omitempty"`
	Memory int64 `json:"memory_bytes,omitempty"`
	// Ports are those that are published, with the ones that were chosen.
	Ports []Port `json:"ports,omitempty"`
	// Restored tells that the guest is a copy of a saved machine, see Config.Cold.
	Restored bool `json:"restored,omitempty"`
	// Resumed tells that the guest goes on from a memory that a snapshot saved.
	Resumed bool `json:"resumed,omitempty"`
	// Confinement lists what the VMM process is confined by.
	Confinement []string `json:"confinement"`
	// Warnings are sentences about what could not be set up in the guest, and about files of secrets that others may
	// read.
	Warnings []string `json:"warnings,omitempty"`
	// Placeholders gives each secret's placeholder by name.
	Placeholders map[string]string `json:"placeholders,omitempty"`
}
