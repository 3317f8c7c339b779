package state

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ErrRestart is wrapped by errors about when a main command is to be run again.
var ErrRestart = errors.New("unusable restart policy")

// RestartWhen says after which ends a main command is run again. The words are docker's.
type RestartWhen string

// The ends. The zero value is RestartNo.
const (
	RestartNo        RestartWhen = "no"
	RestartOnFailure RestartWhen = "on-failure" // an exit code that is not 0
	RestartAlways    RestartWhen = "always"
)

// Restart says when a sandbox's main command is run again by itself.
type Restart struct {
	When RestartWhen `json:"when,omitempty"`
	// Most bounds how often, with RestartOnFailure; 0 is no bound.
	Most int `json:"most,omitempty"`
}

// maxRestarts is far above what anybody writes, and fits in a job's file.
const maxRestarts = 1_000_000

// ParseRestart reads "no", "on-failure[:N]" or "always".
func ParseRestart(s string) (Restart, error) {
	when, most, bounded := strings.Cut(s, ":")
	r := Restart{When: RestartWhen(when)}
	if bounded {
		n, err := strconv.Atoi(most)
		if err != nil || n < 1 {
			return r, fmt.Errorf("%w %.80q: give on-failure a number of 1 and more, such as on-failure:5, or leave it out for no bound", ErrRestart, s)
		}
		r.Most = n
	}
	return r, r.Check()
}

// Check refuses what ParseRestart does.
func (r Restart) Check() error {
	switch {
	case r.When == "unless-stopped":
		return fmt.Errorf("%w unless-stopped: nothing starts a sandbox that msb stop has ended; write always", ErrRestart)
	case r.When != "" && r.When != RestartNo && r.When != RestartOnFailure && r.When != RestartAlways:
		return fmt.Errorf("%w %.80q: write no, on-failure, on-failure:N or always", ErrRestart, r.String())
	case r.Most != 0 && r.When != RestartOnFailure:
		return fmt.Errorf("%w %.80q: only on-failure takes a number", ErrRestart, r.String())
	case r.Most < 0 || r.Most > maxRestarts:
		return fmt.Errorf("%w %.80q: the number is at most %d", ErrRestart, r.String(), maxRestarts)
	}
	return nil
}

// None reports whether nothing is ever run again.
func (r Restart) None() bool { return r.When == "" || r.When == RestartNo }

// String is the form that ParseRestart reads.
func (r Restart) String() string {
	switch {
	case r.When == "":
		return string(RestartNo)
	case r.Most != 0:
		return fmt.Sprintf("%s:%d", r.When, r.Most)
	}
	return string(r.When)
}

// The pauses before a restart are docker's (daemon/restartmanager): they double up to maxRestartPause, and begin again
// after a run of calmRun.
const (
	firstRestartPause = 100 * time.Millisecond
	maxRestartPause   = time.Minute
	calmRun           = 10 * time.Second
)

// Restarts counts the restarts of one command.
type Restarts struct {
	Policy Restart `json:"policy"`
	Count  int     `json:"count"`
	// Pause is that before the last one, in nanoseconds.
	Pause time.Duration `json:"pause"`
}

// Next says whether a command that ran for so long and ended with this code is run again, and after which pause. It
// counts the restart.
func (r *Restarts) Next(ran time.Duration, code int) (pause time.Duration, again bool) {
	switch r.Policy.When {
	case RestartAlways:
		again = true
	case RestartOnFailure:
		again = code != 0 && (r.Policy.Most == 0 || r.Count < r.Policy.Most)
	case RestartNo:
	}
	if !again {
		return 0, false
	}
	r.Pause = min(2*r.Pause, maxRestartPause)
	if r.Pause == 0 || ran >= calmRun {
		r.Pause = firstRestartPause
	}
	r.Count++
	return r.Pause, true
}
