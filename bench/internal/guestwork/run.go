//go:build linux

package guestwork

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// Verb is the argument that makes a program this one.
const Verb = "inside"

// The first argument after Verb: what is to be done.
const (
	DoMeta   = "meta"
	DoStream = "stream"
)

// Run does what args say, which are those after Verb, and writes the values to out.
func Run(args []string, out io.Writer) error {
	if len(args) != 3 {
		return errors.New("inside: want what, directory, number")
	}
	n, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	f := Values{}
	switch args[0] {
	case DoMeta:
		err = f.meta(filepath.Join(args[1], "meta"), n)
	case DoStream:
		err = f.stream(filepath.Join(args[1], "stream"), n)
	default:
		err = fmt.Errorf("inside: no %q", args[0])
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(f)
}

// Parse reads what Run wrote.
func Parse(out []byte) (Values, error) {
	var f Values
	if err := json.Unmarshal(out, &f); err != nil {
		return nil, fmt.Errorf("what the guest printed: %w: %.200q", err, out)
	}
	return f, nil
}

// DropCaches makes the guest forget what it has read.
func DropCaches() error {
	unix.Sync()
	return os.WriteFile("/proc/sys/vm/drop_caches", []byte("3"), 0)
}
