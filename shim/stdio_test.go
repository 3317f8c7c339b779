package shim

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
)

// fifos makes the FIFOs of a process, as containerd does.
func fifos(t *testing.T) streams {
	t.Helper()
	dir := t.TempDir()
	s := streams{stdin: filepath.Join(dir, "in"), stdout: filepath.Join(dir, "out"), stderr: filepath.Join(dir, "err")}
	for _, path := range []string{s.stdin, s.stdout, s.stderr} {
		if err := unix.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// TestStdinIsReadToItsEnd: what was written before CloseIO is read, though another writer still holds the FIFO; and the end
// of all writers is the end without it.
func TestStdinIsReadToItsEnd(t *testing.T) {
	t.Parallel()
	for _, closeIO := range []bool{true, false} {
		l := newLab(t)
		s := fifos(t)
		l.running("one", baseSpec(), s)
		out, err := os.OpenFile(s.stdout, os.O_RDONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		in, err := os.OpenFile(s.stdin, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := in.WriteString("to the end"); err != nil {
			t.Fatal(err)
		}
		if closeIO {
			if _, err := l.s.CloseIO(t.Context(), &taskapi.CloseIORequest{ID: "one", Stdin: true}); err != nil {
				t.Error(err)
			}
		} else if err := in.Close(); err != nil {
			t.Error(err)
		}
		if got := l.wait("one", ""); got != 7 {
			t.Errorf("exit status %d, want 7", got)
		}
		if got, err := io.ReadAll(out); err != nil || string(got) != "to the end" {
			t.Errorf("got %q, %v", got, err)
		}
		_, _ = in.Close(), out.Close()
	}
}

// TestOutputWaitsForAReader: what is written while no client has the FIFO open is there for the next one.
func TestOutputWaitsForAReader(t *testing.T) {
	t.Parallel()
	s := fifos(t)
	io, err := openStdio(t.Context(), "one", "test", s)
	if err != nil {
		t.Fatal(err)
	}
	defer io.close()
	for _, text := range []string{"first", "second"} {
		if _, err := io.Stdout.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		r, err := os.OpenFile(s.stdout, os.O_RDONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 100)
		n, err := r.Read(b)
		if err != nil || string(b[:n]) != text {
			t.Errorf("got %q, %v", b[:n], err)
		}
		_ = r.Close()
	}
}

// TestClosedOutputBlocksNobody: a write that waits for a reader ends when the streams are closed.
func TestClosedOutputBlocksNobody(t *testing.T) {
	t.Parallel()
	io, err := openStdio(t.Context(), "one", "test", fifos(t))
	if err != nil {
		t.Fatal(err)
	}
	wrote := make(chan error)
	go func() {
		_, err := io.Stdout.Write(make([]byte, 1<<20)) // more than a FIFO holds
		wrote <- err
	}()
	io.close()
	select {
	case err := <-wrote:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Fatal("the write goes on")
	}
}

// TestOutputByURI: a file gets both outputs; a logger gets each in a descriptor of its own, with the keys of the URI and the
// container's names. The twin of the known schemes is one that isn't.
func TestOutputByURI(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	script := filepath.Join(dir, "logger")
	if err := os.WriteFile(script, []byte("#!/bin/sh\nexec 5>&-\n{ echo $1 $2 $CONTAINER_ID $CONTAINER_NAMESPACE; cat <&3; cat <&4; } > "+dir+"/log\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ uri, file, want string }{
		{"file://" + dir + "/sub/both", dir + "/sub/both", "outerr"},
		{"binary://" + script + "?key=value", dir + "/log", "key value one test\nouterr"},
	} {
		s, err := openStdio(t.Context(), "one", "test", streams{stdout: c.uri, stderr: c.uri})
		if err != nil {
			t.Fatal(err)
		}
		_, err1 := s.Stdout.Write([]byte("out"))
		_, err2 := s.Stderr.Write([]byte("err"))
		s.close()
		got, err := os.ReadFile(c.file)
		if err != nil || err1 != nil || err2 != nil || string(got) != c.want {
			t.Errorf("%s: got %q, %v %v %v", c.uri, got, err, err1, err2)
		}
	}
	for uri, want := range map[string]string{"tcp://x": `scheme "tcp" is unknown`, "binary:///not/there": "the logger /not/there", "binary-v2:///bin/true": "did not become ready"} {
		if _, err := openStdio(context.Background(), "one", "test", streams{stdout: uri}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", uri, err, want)
		}
	}
}
