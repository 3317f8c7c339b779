package main

import (
	"bytes"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"
)

// full is a standard output on a full disk.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// TestHelpThatIsLostIsAnError asks every command for its help, with nowhere to print it.
func TestHelpThatIsLostIsAnError(t *testing.T) {
	t.Parallel()
	var try func(c *cobra.Command)
	try = func(c *cobra.Command) {
		var said, out bytes.Buffer
		args := append(strings.Fields(c.CommandPath())[1:], "--help")
		if code := execute(args, full{}, &said); code != exitNoSpace || strings.Count(said.String(), "\n") != 1 || !strings.Contains(said.String(), syscall.ENOSPC.Error()) {
			t.Errorf("%v: exit %d, said %q", args, code, said.String())
		}
		if code := execute(args, &out, &said); code != 0 || out.Len() == 0 {
			t.Errorf("%v: exit %d, printed %q", args, code, out.String())
		}
		for _, sub := range c.Commands() {
			try(sub)
		}
	}
	try(newRoot(newUI(full{}, full{})))
}

func TestLostOutputIsSaidOnce(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"--version", "--help", "ls --json", "policy show npm", "completion bash"} {
		lost, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		var said bytes.Buffer
		c := command(t, nil, strings.Fields(line)...)
		c.Stdout, c.Stderr = lost, &said
		_ = c.Run() // its exit code is looked at
		_ = lost.Close()
		if code := c.ProcessState.ExitCode(); code != exitNoSpace || strings.Count(said.String(), syscall.ENOSPC.Error()) != 1 {
			t.Errorf("%q: exit %d, said %q", line, code, said.String())
		}
	}
}
