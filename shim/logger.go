package shim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// loggerWait is how long a logger may take to write what it has read, once the outputs have ended.
const loggerWait = 12 * time.Second

// logger is a program that gets a process's outputs (containerd's binary:// logging): stdout is its descriptor 3, stderr 4,
// and it closes 5 when it is ready.
type logger struct {
	cmd            *exec.Cmd
	stdout, stderr *os.File
	once           sync.Once
}

func startLogger(ctx context.Context, uri *url.URL, id, namespace string) (_ *logger, err error) {
	var made []*os.File
	defer func() {
		if err != nil {
			closeFiles(made...)
		}
	}()
	pipe := func() (r, w *os.File) {
		if err == nil {
			r, w, err = os.Pipe()
			made = append(made, r, w)
		}
		return r, w
	}
	outR, outW := pipe()
	errR, errW := pipe()
	readyR, readyW := pipe()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(uri.Path, loggerArgs(uri)...) //nolint:noctx // it outlives this call
	cmd.Env = append(os.Environ(), "CONTAINER_ID="+id, "CONTAINER_NAMESPACE="+namespace)
	cmd.ExtraFiles = []*os.File{outR, errR, readyW}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("the logger %s: %w", uri.Path, err)
	}
	closeFiles(outR, errR, readyW)
	l := &logger{cmd: cmd, stdout: outW, stderr: errW}
	stop := context.AfterFunc(ctx, func() { _ = readyR.Close() })
	n, err := readyR.Read(make([]byte, 1))
	stop()
	_ = readyR.Close()
	if err != nil && !errors.Is(err, io.EOF) || n == 0 && uri.Scheme == "binary-v2" {
		l.close()
		return nil, fmt.Errorf("the logger %s did not become ready: %w", uri.Path, errors.Join(err, ctx.Err()))
	}
	return l, nil
}

// loggerArgs are a URI's keys and values, as containerd's own shim hands them over.
func loggerArgs(uri *url.URL) (args []string) {
	for key, values := range uri.Query() {
		args = append(args, key)
		if len(values) > 0 {
			args = append(args, values[0])
		}
	}
	return args
}

// close ends the outputs, and the program if it doesn't end by that.
func (l *logger) close() {
	l.once.Do(func() {
		closeFiles(l.stdout, l.stderr)
		kill := time.AfterFunc(loggerWait, func() { _ = l.cmd.Process.Signal(unix.SIGKILL) })
		defer kill.Stop()
		_ = l.cmd.Wait() // how a logger ends is its own affair
	})
}

func closeFiles(files ...*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close()
		}
	}
}
