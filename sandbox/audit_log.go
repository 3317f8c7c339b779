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

// logEvent adds a line to the audit log of a sandbox that doesn't run; otherwise its supervisor does. dir is the sandbox's
// directory. A log that is a pipe or device is skipped, since it is read only while the sandbox runs.
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

// errNoReader is for an audit log that is a pipe or a device: nobody reads it while the sandbox doesn't run.
var errNoReader = errors.New("the audit log is no file, and is read while the sandbox runs only; start it first")

// recordEvents is logEvents for changes that need their lines written first: a line that can't be written is an error.
func recordEvents(st *state.Stored, dir string, events ...audit.Event) error {
	path := auditLog(st, dir)
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return errNoReader
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("audit log: %w", err)
	}
	log, err := audit.OpenLog(path, audit.Options{Labels: st.AuditLabels})
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
