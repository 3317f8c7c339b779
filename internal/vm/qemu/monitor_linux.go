package qemu

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/internal/vm/runner"
)

// monitor is QEMU's control channel, by its protocol QMP. A copy of a saved machine has it until its guest runs anything
// that is not ours; a machine that can be saved while it runs keeps it. QEMU may be broken into then: what comes from it
// is read at once and mostly thrown away, and only bounds waits.
type monitor struct {
	conn    *net.UnixConn
	mu      sync.Mutex // held while a command is executed
	last    uint64     // the number of the last command
	answers chan reply
	events  chan reply
	gone    chan struct{} // closed when QEMU has closed the channel
	err     error         // why; valid once gone is closed
}

const (
	// monitorWait bounds the saving of a machine that copies are made of, and its restoring.
	monitorWait = 20 * time.Second
	// maxReplyBytes bounds one message of QEMU's.
	maxReplyBytes = 64 << 10
	// maxReplies is how many messages are kept until somebody waits for them; others are thrown away.
	maxReplies = 64
)

// newMonitor makes the channel and the descriptor of QEMU's end.
func newMonitor() (*monitor, *os.File, error) {
	conn, file, err := runner.StreamPair("monitor")
	if err != nil {
		return nil, nil, err
	}
	unixConn, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, nil, errors.Join(errors.New("the monitor is no Unix socket"), conn.Close(), file.Close())
	}
	m := &monitor{conn: unixConn, answers: make(chan reply, maxReplies), events: make(chan reply, maxReplies), gone: make(chan struct{})}
	go m.read()
	return m, file, nil
}

// reply is one message of QEMU's: a greeting, an event or an answer.
type reply struct {
	ID    uint64 `json:"id"`
	Event string `json:"event"`
	Data  struct {
		Status string `json:"status"`
	} `json:"data"`
	Return json.RawMessage `json:"return"`
	Error  *struct {
		Desc string `json:"desc"`
	} `json:"error"`
}

// read reads messages, a line each, until the channel is closed.
func (m *monitor) read() {
	in := bufio.NewReaderSize(m.conn, maxReplyBytes)
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			m.err = errors.Join(err, m.conn.Close())
			close(m.gone)
			return
		}
		var r reply
		if json.Unmarshal(line, &r) != nil {
			continue // of no command and no event that is waited for
		}
		to := m.answers
		if r.Event != "" {
			to = m.events
		} else if r.ID == 0 {
			continue // the greeting
		}
		select {
		case to <- r:
		default:
		}
	}
}

// close ends the channel, and waits for what reads it.
func (m *monitor) close() {
	_ = m.conn.Close() // it was closed by QEMU, perhaps
	<-m.gone
}

// arguments are a command's.
type arguments map[string]any

// do executes a command. Files go with it.
func (m *monitor) do(ctx context.Context, command string, args arguments, files ...*os.File) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last++
	message := map[string]any{"execute": command, "id": m.last}
	if args != nil {
		message["arguments"] = args
	}
	raw, err := json.Marshal(message)
	if err != nil {
		return err
	}
	var rights []byte
	for _, f := range files {
		rights = append(rights, unix.UnixRights(int(f.Fd()))...)
	}
	stop := context.AfterFunc(ctx, func() { _ = m.conn.SetWriteDeadline(time.Unix(1, 0)) })
	_, _, err = m.conn.WriteMsgUnix(append(raw, '\n'), rights, nil)
	if !stop() {
		_ = m.conn.SetWriteDeadline(time.Time{})
	}
	for err == nil {
		var r reply
		switch r, err = m.next(ctx, m.answers); {
		case err != nil || r.ID != m.last: // of one that nobody waits for any more
		case r.Error != nil:
			return fmt.Errorf("QEMU's monitor: %s: %s", command, r.Error.Desc)
		default:
			return nil
		}
	}
	return fmt.Errorf("QEMU's monitor: %s: %w", command, err)
}

func (m *monitor) next(ctx context.Context, from <-chan reply) (reply, error) {
	select {
	case r := <-from:
		return r, nil
	default:
	}
	select {
	case r := <-from:
		return r, nil
	case <-m.gone:
		return reply{}, m.err
	case <-ctx.Done():
		return reply{}, ctx.Err()
	}
}

// begin makes the monitor take commands. ignoreMemory leaves the memory, which is
// a file of ours, out of a saved state.
func (m *monitor) begin(ctx context.Context, ignoreMemory bool) error {
	if err := m.do(ctx, "qmp_capabilities", nil); err != nil {
		return err
	}
	return m.capabilities(ctx, ignoreMemory)
}

func (m *monitor) capabilities(ctx context.Context, ignoreMemory bool) error {
	return m.do(ctx, "migrate-set-capabilities", arguments{
		"capabilities": []arguments{
			{"capability": "x-ignore-shared", "state": ignoreMemory},
			{"capability": "events", "state": true},
		},
	})
}

// await waits for an event, with one of the statuses if there are any.
func (m *monitor) await(ctx context.Context, event string, statuses ...string) error {
	for {
		e, err := m.next(ctx, m.events)
		if err != nil {
			return fmt.Errorf("QEMU's monitor: wait for %s: %w", event, err)
		}
		if e.Event != event {
			continue
		}
		if len(statuses) == 0 {
			return nil
		}
		for _, s := range statuses {
			if e.Data.Status == s {
				return nil
			}
		}
		if e.Data.Status == "failed" || e.Data.Status == "cancelled" {
			return fmt.Errorf("QEMU's monitor: %s: %s", event, e.Data.Status)
		}
	}
}

// forget throws away the events that nobody has waited for.
func (m *monitor) forget() {
	for {
		select {
		case <-m.events:
		default:
			return
		}
	}
}

// migrate writes the machine's state to the file.
func (m *monitor) migrate(ctx context.Context, state *os.File) error {
	m.forget()
	if err := m.do(ctx, "getfd", arguments{"fdname": "state"}, state); err != nil {
		return err
	}
	if err := m.do(ctx, "migrate", arguments{"uri": "fd:state"}); err != nil {
		return err
	}
	return m.await(ctx, "MIGRATION", "completed")
}

// save writes the state of a machine that copies are made of, without its memory, to the file.
func (m *monitor) save(ctx context.Context, state *os.File) error {
	if err := m.begin(ctx, true); err != nil {
		return err
	}
	if err := m.migrate(ctx, state); err != nil {
		return err
	}
	return m.do(ctx, "quit", nil)
}

// load reads the state that save wrote from QEMU's descriptor, and returns once
// the machine runs.
func (m *monitor) load(ctx context.Context, fd int) error {
	if err := m.begin(ctx, true); err != nil {
		return err
	}
	if err := m.do(ctx, "migrate-incoming", arguments{"uri": fmt.Sprintf("fd:%d", fd)}); err != nil {
		return err
	}
	return m.await(ctx, "RESUME")
}
