package shim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"sync"

	"github.com/msb-project/msb/sandbox"
)

// streams are where containerd wants a process's streams: paths of FIFOs, URIs, or "" for none.
type streams struct {
	stdin, stdout, stderr string
	terminal              bool
}

// stdio are a process's streams, opened.
type stdio struct {
	sandbox.ContainerStdio
	in     *stdin
	out    []*output
	logger *logger
	once   sync.Once
}

// openStdio opens a process's streams as other shims do: FIFOs, "file:///path", and "binary:///program?key=value" for a
// program that reads both outputs.
func openStdio(ctx context.Context, id, namespace string, s streams) (_ *stdio, err error) {
	if s.terminal {
		s.stderr = "" // its output is in stdout
	}
	io := &stdio{}
	defer func() {
		if err != nil {
			io.close()
		}
	}()
	if s.stdin != "" {
		if io.in, err = openStdin(s.stdin); err != nil {
			return nil, err
		}
		io.Stdin = io.in
	}
	uri, err := url.Parse(s.stdout)
	if err != nil {
		return nil, refused(fmt.Sprintf("stdout %q: %v", s.stdout, err))
	}
	switch uri.Scheme {
	case "", "fifo":
		if uri.Scheme != "" {
			s.stdout = uri.Path
		}
		err = io.outputs(s)
	case "file":
		err = io.file(uri.Path)
	case "binary", "binary-v2":
		if io.logger, err = startLogger(ctx, uri, id, namespace); err == nil {
			io.Stdout, io.Stderr = io.logger.stdout, io.logger.stderr
		}
	default:
		err = refused(fmt.Sprintf("stdout %q: the scheme %q is unknown; use fifo, file or binary", s.stdout, uri.Scheme))
	}
	return io, err
}

func (s *stdio) outputs(from streams) error {
	for _, f := range []struct {
		path string
		to   *io.Writer
	}{{from.stdout, &s.Stdout}, {from.stderr, &s.Stderr}} {
		if f.path == "" {
			continue
		}
		o, err := openOutput(f.path)
		if err != nil {
			return err
		}
		s.out = append(s.out, o)
		*f.to = o
	}
	return nil
}

// file sends both outputs to one file.
func (s *stdio) file(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // G301: as other shims make it
		return err
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644) //nolint:gosec // G302: likewise
	if err != nil {
		return err
	}
	o := &output{f}
	s.out, s.Stdout, s.Stderr = append(s.out, o), o, o
	return nil
}

// closeStdin lets the process read what was written so far, and then the end.
func (s *stdio) closeStdin() {
	if s != nil && s.in != nil {
		s.in.end()
	}
}

// close ends all streams; a write that waits for a reader fails.
func (s *stdio) close() {
	if s == nil {
		return
	}
	s.once.Do(func() {
		if s.in != nil {
			s.in.end()
		}
		for _, o := range s.out {
			_ = o.Close()
		}
		if s.logger != nil {
			s.logger.close()
		}
	})
}

// output is one of a process's outputs.
type output struct{ *os.File }

// openOutput opens a FIFO or a file. Of a FIFO it holds both ends: what is written waits for the next reader when
// containerd or a client of it restarts.
func openOutput(path string) (*output, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	flags := os.O_WRONLY | os.O_APPEND
	if info.Mode()&os.ModeNamedPipe != 0 {
		flags = os.O_RDWR | nonblock // so that Close ends a Write that waits
	}
	f, err := os.OpenFile(path, flags, 0)
	if err != nil {
		return nil, err
	}
	return &output{f}, nil
}

// Write drops what a closed output would get: nobody will read it, and the process goes on.
func (o *output) Write(b []byte) (int, error) {
	n, err := o.File.Write(b)
	if errors.Is(err, os.ErrClosed) {
		return len(b), nil
	}
	return n, err
}
