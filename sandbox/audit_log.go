package sandbox

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// logEvent adds a line to the audit log of a sandbox that does not run, whose supervisor would write it else. dir is the
// sandbox's directory. A log that is no file, such as a pipe, has readers of runs only.
func logEvent(st *state.Stored, dir string, kind audit.Kind, message string) error {
	return logEvents(st, dir, audit.Event{Kind: kind, Message: message})
}

// logEvents is logEvent for lines that say more.
func logEvents(st *state.Stored, dir string, events ...audit.Event) error {
	if info, err := os.Stat(auditLog(st, dir)); err == nil && !info.Mode().IsRegular() {
		return nil
	}
	return recordEvents(st, dir, events...)
}

// errNoReader is of an audit log that is a pipe or a device: while the sandbox doesn't run, nobody reads it.
var errNoReader = errors.New("the audit log is no file, and is read while the sandbox runs only; start it first")

// recordEvents is logEvents for what may only come about once its lines are written.
func recordEvents(st *state.Stored, dir string, events ...audit.Event) error {
	path := auditLog(st, dir)
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return errNoReader
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("audit log: %w", err)
	}
	log, err := audit.OpenLog(path, audit.Options{})
	if err != nil {
		return fmt.Errorf("audit log: %w", err)
	}
	for _, e := range events {
		e.Sandbox = st.Name
		log.Emit(e)
	}
	return log.Close()
}

// auditLog is the file of a sandbox's verdicts.
func auditLog(st *state.Stored, dir string) string {
	return cmp.Or(st.Audit, filepath.Join(dir, state.AuditLog))
}
