package secretstore

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/policies/grants"
)

// runCommand never repeats what the command wrote: its error output may hold
// what its standard output was meant to.
func (r *reader) runCommand(ctx context.Context, from *policies.Source) ([]byte, error) {
	if len(from.Argv) == 0 {
		return nil, fmt.Errorf("%w: its command is empty", ErrValue)
	}
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, from.Argv[0], from.Argv[1:]...)
	cmd.Env = slices.DeleteFunc(r.environ(), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.Contains(r.hidden, name)
	})
	if from.Hold != nil {
		done, err := holdCommand(cmd, from.Hold)
		if err != nil {
			return nil, fmt.Errorf("%w: the command %s: %w", ErrValue, from.Argv[0], err)
		}
		defer done()
	}
	cmd.WaitDelay = time.Second
	out := boundedBuffer{max: MaxLength + 2}
	cmd.Stdout = &out
	if err := cmd.Run(); err != nil {
		clear(out.data)
		return nil, fmt.Errorf("%w: the command %s: %w: run it by hand to see why", ErrValue, from.Argv[0], err)
	}
	return trimLine(out.data), nil
}

// holdCommand makes cmd run what was approved and nothing else: files that whoever
// wrote the policy may change are looked at again, and a script of theirs is run
// from a copy. done gives the copy back.
func holdCommand(cmd *exec.Cmd, h *policies.Hold) (done func(), err error) {
	if err := grants.Check(h); err != nil {
		return nil, err
	}
	cmd.Dir, cmd.Env = h.Dir, grants.Environ(cmd.Env, h.Trees)
	cmd.Err = nil // it was looked up in another PATH
	if h.Path == "" {
		_, err := grants.LookPath(cmd.Args[0], h.Trees)
		if err == nil {
			err = fmt.Errorf("it wasn't there when the policy was approved")
		}
		return nil, err
	}
	cmd.Path = h.Path
	if h.Program == "" {
		return func() {}, nil
	}
	script, err := grants.Copy(h)
	if err != nil {
		return nil, err
	}
	cmd.ExtraFiles = append(cmd.ExtraFiles, script)
	cmd.Path = fmt.Sprintf("/proc/self/fd/%d", 2+len(cmd.ExtraFiles))
	return func() { _ = script.Close() }, nil
}
