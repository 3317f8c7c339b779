//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// runRequest and runAnswer are the one command of an emulated host: a program
// to run, as JSON on one line each way. vmtest/emuhost has the other side.
type runRequest struct {
	Argv []string
	Env  []string
}

type runAnswer struct {
	Output string // stdout and stderr, as they came
	Exit   int
	Error  string
}

// beat says every second that the machine still runs, until the function that it returns is called.
// vmtest/emuhost skips these lines, and misses them when the emulation stands still.
func beat(port io.Writer) (quiet func()) {
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticks := time.NewTicker(time.Second)
		defer ticks.Stop()
		for {
			select {
			case <-stop:
				return
			case <-ticks.C:
				if _, err := io.WriteString(port, "alive\n"); err != nil {
					return
				}
			}
		}
	}()
	return func() {
		close(stop)
		<-ended
	}
}

// runProgram runs a program to its end.
func runProgram(args []string) (string, error) {
	var req runRequest
	if err := json.Unmarshal([]byte(strings.Join(args, " ")), &req); err != nil {
		return "", err
	}
	var out strings.Builder
	cmd := exec.Command(req.Argv[0], req.Argv[1:]...)
	cmd.Env = req.Env
	cmd.Dir = "/tmp"
	// On the console as well, for when the program never ends.
	w := io.Writer(&out)
	if console, err := os.OpenFile("/dev/hvc0", os.O_WRONLY, 0); err == nil {
		defer console.Close()
		w = io.MultiWriter(&out, console)
	}
	cmd.Stdout, cmd.Stderr = w, w
	err := cmd.Run()
	a := runAnswer{Output: out.String(), Exit: cmd.ProcessState.ExitCode()}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		a.Error = err.Error()
	}
	raw, err := json.Marshal(a)
	return string(raw), err
}

// becomeHost mounts what an ordinary program expects of a host.
func becomeHost([]string) (string, error) {
	for _, dir := range []string{"/tmp", "/run"} {
		if err := mount("tmpfs", dir); err != nil {
			return "", err
		}
	}
	for _, m := range []struct{ fs, dir string }{{"tmpfs", "/dev/shm"}, {"devpts", "/dev/pts"}} {
		if err := os.MkdirAll(m.dir, 0o755); err != nil {
			return "", err
		}
		if err := mount(m.fs, m.dir); err != nil {
			return "", err
		}
	}
	return "host", loopbackUp()
}
