package mcp

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"
	"time"
)

// errArgs is wrapped by errors about arguments, which say what to write instead.
var errArgs = errors.New("wrong arguments")

func wrong(format string, args ...any) error {
	return say("%w: "+format, append([]any{errArgs}, args...)...)
}

// decode reads a tool's arguments strictly: a misspelled name is an error, and not ignored.
func decode(raw json.RawMessage, into any) error {
	if len(bytes.TrimSpace(raw)) == 0 || string(bytes.TrimSpace(raw)) == "null" {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	var kind *json.UnmarshalTypeError
	if errors.As(err, &kind) { // encoding/json's own text names this program's fields
		return wrong("%s is a JSON %s, and has to be %s", printed(cmp.Or(kind.Field[strings.LastIndexByte(kind.Field, '.')+1:], "it")), printed(kind.Value), jsonKind(kind.Type))
	}
	if err != nil {
		return wrong("%s", printed(strings.TrimPrefix(err.Error(), "json: ")))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return wrong("more than one JSON value")
	}
	return nil
}

// jsonKind names the kind of JSON value that a type is read from.
func jsonKind(t reflect.Type) string {
	switch t.Kind() { //nolint:exhaustive // the kinds that arguments have
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		return "an array"
	case reflect.Map, reflect.Struct:
		return "an object"
	}
	return "a number"
}

const (
	defaultTimeout = time.Minute
	maxTimeout     = 10 * time.Minute
	// maxWords bounds a command line, and the variables of a program, which the kernel bounds too, in bytes.
	maxWords = 128 << 10
)

// program is what the tools that run one take.
type program struct {
	Command string            `json:"command"`
	Argv    []string          `json:"argv"`
	Cwd     string            `json:"cwd"`
	Env     map[string]string `json:"env"`
	Stdin   string            `json:"stdin"`
	Timeout *float64          `json:"timeout"`
}

// words is the program with its arguments.
func (p *program) words() ([]string, error) {
	switch {
	case p.Command != "" && len(p.Argv) > 0:
		return nil, wrong("give command (a shell line) or argv, not both")
	case p.Command == "" && (len(p.Argv) == 0 || p.Argv[0] == ""):
		return nil, wrong(`give a shell line as command, or a program with its arguments as argv, such as ["ls", "-l"]`)
	}
	argv := p.Argv
	if p.Command != "" {
		argv = []string{"/bin/sh", "-c", p.Command}
	}
	if size := len(strings.Join(argv, " ")); size > maxWords {
		return nil, wrong("a command line of %d bytes; at most %d, so write a file with fs_write and run that", size, maxWords)
	}
	if strings.ContainsRune(strings.Join(argv, ""), 0) {
		return nil, wrong("a command line can't hold a NUL character")
	}
	return argv, nil
}

// environ are the variables as NAME=value, in the order of their names.
func (p *program) environ() ([]string, error) {
	var env []string
	for _, name := range slices.Sorted(maps.Keys(p.Env)) {
		if name == "" || strings.ContainsAny(name, "=\x00 \t\r\n") || strings.ContainsRune(p.Env[name], 0) {
			return nil, wrong("env: %q can't be set; names hold no = and no blanks, and nothing holds a NUL character", printed(name))
		}
		env = append(env, name+"="+p.Env[name])
	}
	return env, nil
}

func (p *program) timeout() (time.Duration, error) {
	if p.Timeout == nil {
		return defaultTimeout, nil
	}
	if !(*p.Timeout > 0 && *p.Timeout <= maxTimeout.Seconds()) {
		return 0, wrong("timeout %v: give it more than 0 and at most %v seconds; start what takes longer with job", *p.Timeout, maxTimeout.Seconds())
	}
	return max(time.Duration(*p.Timeout*float64(time.Second)), time.Millisecond), nil // 0 would be no timeout
}

// guestFile is guestPath for a file to be written.
func guestFile(p string) error {
	if strings.HasSuffix(p, "/") {
		return wrong("path %q names a directory; write that of a file", printed(p))
	}
	return guestPath(p)
}

// guestPath refuses anything but an absolute path. Where it leads in the guest is not checked.
func guestPath(p string) error {
	if !path.IsAbs(p) || strings.ContainsRune(p, 0) || len(p) > 4095 { // PATH_MAX
		return wrong("path %q: write an absolute path of the sandbox, such as /root/app.py", printed(p))
	}
	return nil
}
