package agentclient

import (
	"sync"

	"github.com/msb-project/msb/agentd/agentpb"
)

// ExecStage is how far a process has come.
type ExecStage int

// The stages. ExecDied is the last one, of what never started too.
const (
	ExecCreated ExecStage = iota
	ExecStarted
	ExecDied
)

// ExecEvent reports the start or end of a process that a client of Serve asked for.
type ExecEvent struct {
	Stage ExecStage
	// ID ties the events of one process together; it is unique in one session with the guest.
	ID uint64
	// Program is the first word of the command: the others may be private.
	Program string
	// Container is the id of the process's container; "" if it is in none.
	Container string
	// Code is that of ExecDied; nil if the process has none, because its client or the guest has gone.
	Code *int
}

// witnessed reports the events of one process. Its methods may be called from several goroutines.
type witnessed struct {
	tell func(ExecEvent)
	mu   sync.Mutex
	last ExecEvent
}

func (c *Client) witness(m *agentpb.ExecStart, tell func(ExecEvent)) *witnessed {
	w := &witnessed{tell: tell, last: ExecEvent{ID: c.execs.Add(1)}}
	argv := m.GetArgv()
	if in := m.GetContainer(); in != nil {
		w.last.Container, argv = in.GetContainer(), in.GetProcess().GetArgs() // none of the first process, which Create made
	}
	if len(argv) > 0 {
		w.last.Program = argv[0]
	}
	w.to(ExecCreated, nil)
	return w
}

// saw tells of what the guest says.
func (w *witnessed) saw(resp *agentpb.ExecResponse) {
	switch r := resp.GetResponse().(type) {
	case *agentpb.ExecResponse_Started:
		w.to(ExecStarted, nil)
	case *agentpb.ExecResponse_Exit:
		code := int(r.Exit.GetCode())
		w.to(ExecDied, &code)
	}
}

// end tells of a process without an exit status.
func (w *witnessed) end() { w.to(ExecDied, nil) }

func (w *witnessed) to(stage ExecStage, code *int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.tell == nil || w.last.Stage == ExecDied {
		return
	}
	w.last.Stage, w.last.Code = stage, code
	w.tell(w.last)
}
