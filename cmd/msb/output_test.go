package main

import (
	"bytes"
	"os"
	"strings"
	"syscall"
	"testing"
	"text/template"

	"github.com/spf13/cobra"
)

// full is a standard output on a full disk.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// TestLostHelpIsAnError asks every command for its help, with nowhere to print it.
func TestLostHelpIsAnError(t *testing.T) {
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

// gone is a standard output whose reader has left, as in `msb ls | head -0`.
type gone struct{}

func (gone) Write([]byte) (int, error) { return 0, syscall.EPIPE }

func TestReadersThatLeaveAreNoError(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"--version", "--help", "policy presets", "policy show npm"} {
		var said bytes.Buffer
		if code := execute(strings.Fields(line), gone{}, &said); code != 141 || said.Len() > 0 {
			t.Errorf("%s: exit %d, said %q", line, code, said.String())
		}
	}
}

// TestTemplatesShowNoControlCharacters: the words of a guest's process are its own, and a template prints them.
func TestTemplatesShowNoControlCharacters(t *testing.T) {
	t.Parallel()
	row := struct {
		Command []string          `json:"command"`
		Labels  map[string]string `json:"labels"`
		Name    string            `json:"name"`
	}{[]string{"sh", "\x1b]0;title\a\b"}, map[string]string{"a": "x\ny"}, "\u202eweb"}
	got, err := formatted(template.Must(template.New("").Parse("{{.name}}\t{{.command}} {{.labels.a}}\n")), &row)
	if want := `\u202eweb` + "\t" + `[sh \x1b]0;title\x07\x08] x\x0ay` + "\n"; err != nil || got != want {
		t.Errorf("printed %q, %v, want %q", got, err, want)
	}
}
