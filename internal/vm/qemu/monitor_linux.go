package qemu

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/internal/vm/runner"
)

// monitor is QEMU's control channel, by its protocol QMP. It is open while a
// machine is saved or restored, and closed before its guest runs anything that
// is not ours.
type monitor struct {
	conn   *net.UnixConn
	dec    *json.Decoder
	events []reply // that nobody has waited for
}

const (
	// monitorWait bounds the saving of a machine, and its restoring.
	monitorWait = 20 * time.Second
	// maxMonitorBytes bounds what is read of a monitor in all.
	maxMonitorBytes = 1 << 20
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
	if err := conn.SetDeadline(time.Now().Add(monitorWait)); err != nil {
		return nil, nil, errors.Join(err, conn.Close(), file.Close())
	}
	return &monitor{conn: unixConn, dec: json.NewDecoder(io.LimitReader(unixConn, maxMonitorBytes))}, file, nil
}

// reply is one message of QEMU's: a greeting, an event or an answer.
type reply struct {
	Event string `json:"event"`
	Data  struct {
		Status string `json:"status"`
	} `json:"data"`
	Return json.RawMessage `json:"return"`
	Error  *struct {
		Desc string `json:"desc"`
	} `json:"error"`
}

// arguments are a command's.
type arguments map[string]any

// do executes a command. Files go with it.
func (m *monitor) do(command string, args arguments, files ...*os.File) error {
	message := map[string]any{"execute": command}
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
	if _, _, err := m.conn.WriteMsgUnix(append(raw, '\n'), rights, nil); err != nil {
		return fmt.Errorf("QEMU's monitor: %s: %w", command, err)
	}
	for {
		var r reply
		switch err := m.dec.Decode(&r); {
		case err != nil:
			return fmt.Errorf("QEMU's monitor: %s: %w", command, err)
		case r.Error != nil:
			return fmt.Errorf("QEMU's monitor: %s: %s", command, r.Error.Desc)
		case r.Return != nil:
			return nil
		}
		m.note(&r)
	}
}

// begin makes the monitor take commands, and leave memory out of a saved state.
func (m *monitor) begin() error {
	if err := m.do("qmp_capabilities", nil); err != nil {
		return err
	}
	return m.do("migrate-set-capabilities", arguments{
		"capabilities": []arguments{
			{"capability": "x-ignore-shared", "state": true},
			{"capability": "events", "state": true},
		},
	})
}

// await waits for an event, with that status if it has one.
func (m *monitor) await(event, status string) error {
	for {
		for len(m.events) > 0 {
			e := m.events[0]
			m.events = m.events[1:]
			if e.Event != event {
				continue
			}
			switch e.Data.Status {
			case status:
				return nil
			case "failed", "cancelled":
				return fmt.Errorf("QEMU's monitor: %s: %s", event, e.Data.Status)
			}
		}
		var r reply
		if err := m.dec.Decode(&r); err != nil {
			return fmt.Errorf("QEMU's monitor: wait for %s: %w", event, err)
		}
		m.note(&r)
	}
}

// note keeps an event until it is waited for.
func (m *monitor) note(r *reply) {
	if r.Event != "" {
		m.events = append(m.events, *r)
	}
}

// within ends every wait when the context ends, until off is called.
func (m *monitor) within(ctx context.Context) (off func() bool) {
	return context.AfterFunc(ctx, func() { _ = m.conn.SetDeadline(time.Unix(1, 0)) })
}

// save writes the machine's state, without its memory, to the file.
func (m *monitor) save(ctx context.Context, state *os.File) error {
	defer m.within(ctx)()
	if err := m.begin(); err != nil {
		return err
	}
	if err := m.do("getfd", arguments{"fdname": "state"}, state); err != nil {
		return err
	}
	if err := m.do("migrate", arguments{"uri": "fd:state"}); err != nil {
		return err
	}
	if err := m.await("MIGRATION", "completed"); err != nil {
		return err
	}
	return m.do("quit", nil)
}

// load reads the state that save wrote from QEMU's descriptor, and returns once
// the machine runs.
func (m *monitor) load(ctx context.Context, fd int) error {
	defer m.within(ctx)()
	if err := m.begin(); err != nil {
		return err
	}
	if err := m.do("migrate-incoming", arguments{"uri": fmt.Sprintf("fd:%d", fd)}); err != nil {
		return err
	}
	return m.await("RESUME", "")
}
