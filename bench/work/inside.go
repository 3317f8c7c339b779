//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/msb-project/msb/bench/internal/guestwork"
)

// What this program does in the guest beside what guestwork has.
const (
	doExec   = "exec"
	doTool   = "tool"
	doMemory = "memory" // serve inMemory
)

// inside is this program in the guest: args are what to do, a directory, a number, and for a tool the name of its series
// and its command. It prints values as JSON, unless it serves.
func inside(args []string) error {
	if len(args) == 2 && args[0] == doMemory {
		return serveMemory(args[1])
	}
	if len(args) < 3 || args[0] != doExec && args[0] != doTool {
		return guestwork.Run(args, os.Stdout)
	}
	f := values{}
	var err error
	if args[0] == doTool {
		err = insideTool(f, args[1], args[3:])
	} else {
		err = insideExec(f, args[2])
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(f)
}

func insideExec(f values, times string) error {
	n, err := strconv.Atoi(times)
	if err != nil {
		return err
	}
	for range n + 1 {
		began := time.Now()
		if err := exec.Command("/bin/true").Run(); err != nil {
			return err
		}
		f.took(seriesFork, time.Since(began))
	}
	f[seriesFork] = f[seriesFork][1:] // the first reads the program from the disk
	return nil
}

// insideTool times a command in a directory.
func insideTool(f values, dir string, argv []string) error {
	if err := guestwork.DropCaches(); err != nil {
		return err
	}
	cmd := exec.Command(argv[1], argv[2:]...)
	cmd.Dir = dir
	began := time.Now()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", argv[1], err, out)
	}
	f.took(argv[0], time.Since(began))
	return nil
}
