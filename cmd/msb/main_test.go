package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/msb-project/msb/internal/vm/vmtest"
	"github.com/msb-project/msb/sandbox"
)

// asMSB makes the test's program be msb: the tests look at it from the outside.
const asMSB = "MSB_TEST_AS_MSB"

var scratch string

func TestMain(m *testing.M) {
	sandbox.MaybeRun()
	maybeUseFile()
	if os.Getenv(asMSB) != "" {
		os.Exit(run(os.Args[1:]))
	}
	os.Exit(vmtest.Run(m, &scratch))
}

// result is what a user sees of one command.
type result struct {
	out, err string
	code     int
}

// msb runs one command line under a state directory of the test's own, with extra environment.
func msb(t *testing.T, env []string, args ...string) result {
	t.Helper()
	return finish(t, command(t, env, args...))
}

func command(t *testing.T, env []string, args ...string) *exec.Cmd {
	t.Helper()
	return commandUntil(t.Context(), t, env, args...)
}

// commandUntil is command, killed at the end of ctx.
func commandUntil(ctx context.Context, t *testing.T, env []string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Env = append(os.Environ(), asMSB+"=1", sandbox.EnvHome+"="+filepath.Join(scratch, "home"))
	cmd.Env = append(cmd.Env, env...)
	return cmd
}

func finish(t *testing.T, cmd *exec.Cmd) result {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return result{out.String(), errs.String(), cmd.ProcessState.ExitCode()}
}

// write puts a file into a directory of the test's own and returns its path.
func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
