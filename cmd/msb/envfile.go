package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"github.com/spf13/pflag"
)

// maxEnvFile bounds a file of variables, in bytes: more than an exec takes (ARG_MAX is 2 MiB).
const maxEnvFile = 4 << 20

// envFiles is the value of --env-file: the variables of all files, as -e takes them.
type envFiles struct{ to *[]string }

var _ pflag.Value = envFiles{}

// String implements pflag.Value.
func (envFiles) String() string { return "" }

// Type implements pflag.Value.
func (envFiles) Type() string { return "stringArray" }

// Set implements pflag.Value. The form is docker's: a line is NAME=VALUE, taken as it stands, or NAME, which passes one on;
// empty lines and those that begin with "#" are left out. No error shows a line: it may hold a value that is secret.
func (e envFiles) Set(path string) error {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe without a writer is no reason to wait
	if err != nil {
		return errors.New("it can't be read; write the path of a file with a NAME=VALUE on each line")
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, maxEnvFile+1))
	if err != nil || len(text) > maxEnvFile {
		return fmt.Errorf("it is no file of at most %d bytes; write the path of one with a NAME=VALUE on each line", maxEnvFile)
	}
	n := 0
	for line := range strings.Lines(strings.TrimPrefix(string(text), "\ufeff")) {
		n++
		line = strings.TrimLeft(strings.TrimRight(line, "\r\n"), " \t")
		if line == "" || line[0] == '#' {
			continue
		}
		name, _, _ := strings.Cut(line, "=")
		if name == "" || strings.ContainsAny(name, " \t") || strings.ContainsRune(line, 0) {
			return fmt.Errorf("line %d names no variable; write NAME=VALUE, or NAME to pass one on", n)
		}
		*e.to = append(*e.to, line)
	}
	return nil
}
