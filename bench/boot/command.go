//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"
)

// timed is how long a command took.
type timed struct{ first, exit time.Duration }

// timeCommand runs a command that must succeed and write want, and nothing
// else, to its standard output.
func timeCommand(ctx context.Context, env []string, want string, argv ...string) (timed, error) {
	var t timed
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = env
	var errText bytes.Buffer
	cmd.Stderr = &errText
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return t, err
	}
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return t, err
	}
	// A process that outlives the killed command would keep the pipe open.
	stop := context.AfterFunc(ctx, func() { _ = pipe.Close() })
	defer stop()
	first := make([]byte, 1)
	n, _ := io.ReadFull(pipe, first)
	t.first = time.Since(start)
	rest, _ := io.ReadAll(pipe)
	err = cmd.Wait()
	t.exit = time.Since(start)
	got := string(first[:n]) + string(rest)
	if err != nil || strings.TrimSpace(got) != want {
		return t, fmt.Errorf("%s: %w; wrote %q and %q", strings.Join(argv, " "), orUnexpected(err), got, errText.String())
	}
	return t, nil
}

func orUnexpected(err error) error {
	if err == nil {
		return errOutput
	}
	return err
}
