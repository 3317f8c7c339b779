package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/msb-project/msb/image"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// Rename changes the name of a sandbox. ErrRunning while it runs, ErrExists if the new name is taken.
func (h *Home) Rename(ctx context.Context, name, to string) error {
	return Fail(changeNamed(ctx, h, name, func(run *runDir, st *state.Stored) error {
		if err := CheckName(to); err != nil {
			return err
		}
		if _, err := os.Lstat(namedPath(h, to)); err == nil {
			return exists(to)
		}
		if err := clearRun(h, run.dir); err != nil { // what it has of the run before is of the old name
			return err
		}
		st.Renamed = to
		if err := state.WriteJSON(run.dir, state.StoredFile, st); err != nil {
			return err
		}
		err := os.Rename(run.dir, namedPath(h, to))
		if errors.Is(err, fs.ErrExist) { // a directory that holds something is never replaced
			return exists(to)
		}
		return err
	}))
}

// Reset replaces the disk of the sandbox of that name by an empty one, as when it was made, and removes its jobs.
// ErrRunning while it runs. A kill at any time leaves the old disk or the new one.
func (h *Home) Reset(ctx context.Context, name string) error {
	return Fail(changeNamed(ctx, h, name, func(run *runDir, st *state.Stored) error {
		if err := clearRun(h, run.dir); err != nil { // its machine may still write to the disk
			return err
		}
		fresh := filepath.Join(run.dir, state.NewUpperDisk)
		if err := state.UnlessGone(os.Remove(fresh)); err != nil { // from a reset that was killed
			return err
		}
		if err := image.CreateUpper(fresh, st.Disk); err != nil {
			return err
		}
		if err := os.Rename(fresh, filepath.Join(run.dir, state.UpperDisk)); err != nil {
			return err
		}
		if err := dropMemories(run.dir); err != nil {
			return err
		}
		for _, d := range st.Directories { // what was shown of it has no changes above it any more
			if err := state.UnlessGone(os.Remove(state.BaseFile(run.dir, d.Guest))); err != nil {
				return err
			}
		}
		return state.RemoveJobs(filepath.Join(run.dir, state.JobsDir))
	}))
}

// ErrVariable is wrapped by errors about a variable that can't be set.
var ErrVariable = errors.New("unusable variable")

// Env returns the variables that every command of the sandbox of that name gets, as KEY=value, in the order in which they
// were set.
func (h *Home) Env(name string) ([]string, error) {
	st, err := loadStored(h, name)
	if err != nil {
		return nil, Fail(err)
	}
	return withoutOverridden(st.Env), nil
}

// SetEnv sets variables, KEY=value, from the sandbox's next start on. ErrRunning while it runs.
func (h *Home) SetEnv(ctx context.Context, name string, env ...string) error {
	for _, e := range env {
		if err := checkVariable(strings.Cut(e, "=")); err != nil {
			return err
		}
	}
	return changeEnv(ctx, h, name, env, func(have []string) []string { return append(have, env...) })
}

// UnsetEnv removes variables by their names; one that is not set is no error. ErrRunning while it runs.
func (h *Home) UnsetEnv(ctx context.Context, name string, variables ...string) error {
	for _, v := range variables {
		if err := checkVariable(v, "", !strings.Contains(v, "=")); err != nil {
			return err
		}
	}
	return changeEnv(ctx, h, name, nil, func(have []string) []string {
		return slices.DeleteFunc(have, func(e string) bool { return slices.Contains(variables, variable(e)) })
	})
}

func changeEnv(ctx context.Context, h *Home, name string, added []string, do func([]string) []string) error {
	return Fail(changeNamed(ctx, h, name, func(run *runDir, st *state.Stored) error {
		if err := noPlaceholder(added, st.Placeholders); err != nil {
			return err
		}
		st.Env = withoutOverridden(do(st.Env))
		return state.WriteJSON(run.dir, state.StoredFile, st)
	}))
}

// checkVariable never shows the value, which may be private.
func checkVariable(name, value string, ok bool) error {
	if !ok || name == "" || strings.ContainsRune(name+value, 0) {
		return fmt.Errorf("%w %.80q: write NAME=VALUE to set one, NAME to unset it", ErrVariable, name)
	}
	return nil
}

// variable is the name of a KEY=value.
func variable(entry string) string {
	name, _, _ := strings.Cut(entry, "=")
	return name
}

// withoutOverridden leaves out each entry that a later one of its name overrides.
func withoutOverridden(env []string) []string {
	var kept []string
	for i, e := range env {
		if !slices.ContainsFunc(env[i+1:], func(later string) bool { return variable(later) == variable(e) }) {
			kept = append(kept, e)
		}
	}
	return kept
}

// changeStopped is changeNamed for a sandbox to which there was no session because of notLive. If it runs all the same, the
// error is why it did not answer.
func changeStopped(ctx context.Context, h *Home, name string, notLive error, do func(*runDir, *state.Stored) error) error {
	err := changeNamed(ctx, h, name, do)
	var silent *noAnswerError
	if errors.Is(err, ErrRunning) && errors.As(notLive, &silent) {
		return fmt.Errorf("%w; `msb stop %s` ends it", silent.reason, name)
	}
	return err
}

// changeNamed lets do change the state of a sandbox that does not run.
func changeNamed(ctx context.Context, h *Home, name string, do func(*runDir, *state.Stored) error) error {
	if err := CheckName(name); err != nil {
		return err
	}
	run, err := lockSettled(ctx, h, name)
	if errors.Is(err, ErrRunning) {
		return fmt.Errorf("%w; `msb stop %s` first", err, name)
	}
	if err != nil {
		return err
	}
	st, err := loadStored(h, name)
	if err == nil {
		err = do(run, st)
	}
	return errors.Join(err, run.lock.Close())
}
