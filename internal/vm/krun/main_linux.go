//go:build linux && cgo

package krun

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/internal/vm/runner"
)

// exitFailed is the exit code of a process that never entered its machine; the
// reason goes over the status pipe.
const exitFailed = 125

// maxConfigBytes bounds the configuration: it fits a pipe's buffer.
const maxConfigBytes = 64 << 10

// Main is the hidden verb: this process, confined already, becomes the VMM.
// It returns only when that went wrong, with the code to exit with.
func Main() int {
	runtime.LockOSThread()
	signal.Ignore(unix.SIGXFSZ) // Go's runtime took it back: a disk over its limit is an error, not the end
	h := runner.TakeHandover()
	if err := run(os.Args, h); err != nil {
		h.Fail(err)
	}
	return exitFailed
}

func run(args []string, h *runner.Handover) error {
	c, err := readConfig(args)
	if err != nil {
		return err
	}
	if err := load(c.Libkrunfw, c.Libkrun); err != nil {
		return err
	}
	if err := missingFeature(); err != nil {
		return err
	}
	ctx, err := build(c)
	if err != nil {
		return err
	}
	// From here on libkrun owns the process: what it has to say goes to stderr,
	// and its exit is the machine's end.
	if err := h.Ready(); err != nil {
		return err
	}
	if err := enter(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return nil
}

func readConfig(args []string) (*config, error) {
	if len(args) != 3 {
		return nil, fmt.Errorf("%s wants a descriptor", Verb)
	}
	fd, err := strconv.ParseUint(args[2], 10, 16)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "config")
	defer f.Close()
	var c config
	dec := json.NewDecoder(io.LimitReader(f, maxConfigBytes))
	dec.DisallowUnknownFields() // as the runner's plan
	if err := dec.Decode(&c); err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	return &c, nil
}
