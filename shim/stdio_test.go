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

// TestLoggersGetBothEnds: a logger that reads each output to its end has both, and is waited for.
func TestLoggersGetBothEnds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	script := filepath.Join(dir, "logger")
	text := "#!/bin/sh\nexec 5>&-\ncat <&3 >" + dir + "/out\ncat <&4 >" + dir + "/err\necho $# >" + dir + "/end\n"
	if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	l := newLab(t)
	c := l.running("one", baseSpec(), streams{stdout: "binary://" + script + "?a=b&c=d"})
	giant := strings.Repeat("x", 1<<20) // more than a pipe holds
	io := c.proc("").io
	for name, w := range map[string]interface{ Write([]byte) (int, error) }{"out": io.Stdout, "err": io.Stderr} {
		if name == "err" {
			_, err := w.Write([]byte("err"))
			if err != nil {
				t.Error(err)
			}
		} else if _, err := w.Write([]byte(giant)); err != nil {
			t.Error(err)
		}
	}
	if err := l.kill("one", "", 15); err != nil || l.wait("one", "") != 143 {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"out": giant, "err": "err", "end": "4\n"} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != want {
			t.Errorf("%s: %.20q of %d bytes, %v", name, got, len(got), err)
		}
	}
}

// TestFilesAreAppendedTo: a container that is started again writes behind what is there, by a URI or a path.
func TestFilesAreAppendedTo(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "log")
	for i, s := range []streams{{stdout: "file://" + file}, {stdout: file, stderr: file}, {stdout: "file://" + file, stderr: "/not/there", terminal: true}} {
		io, err := openStdio(t.Context(), "one", "test", s)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Stdout.Write([]byte{'a' + byte(i)}); err != nil {
			t.Error(err)
		}
		io.close()
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != "abc" {
		t.Errorf("got %q, %v", got, err)
	}
}

// TestStreamsAsContainerdNamesThem: a FIFO by its URI, no error output of a terminal, none at all, and no descriptor that is left
// when one of them can't be opened, or all are closed.
func TestStreamsAsContainerdNamesThem(t *testing.T) {
	open := func() int {
		all, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	f := fifos(t)
	before := open()
	for _, c := range []struct {
		s               streams
		out, err, fails bool
	}{
		{streams{stdin: f.stdin, stdout: "fifo://" + f.stdout, stderr: f.stderr}, true, true, false},
		{streams{stdin: f.stdin, stdout: f.stdout, stderr: f.stderr, terminal: true}, true, false, false},
		{streams{stdout: f.stdout, stderr: "/not/there", terminal: true}, true, false, false},
		{streams{stderr: f.stderr}, false, true, false},
		{streams{}, false, false, false},
		{streams{stdin: f.stdin, stdout: f.stdout, stderr: "/not/there"}, false, false, true},
		{streams{stdin: f.stdin, stdout: "file:///proc/x/y"}, false, false, true},
		{streams{stdin: "/not/there"}, false, false, true},
		{streams{stdout: "%zz"}, false, false, true},
	} {
		io, err := openStdio(t.Context(), "one", "test", c.s)
		if (err != nil) != c.fails {
			t.Errorf("%+v: %v", c.s, err)
		}
		if err == nil {
			if (io.Stdout != nil) != c.out || (io.Stderr != nil) != c.err || (io.Stdin != nil) != (c.s.stdin != "") {
				t.Errorf("%+v: %+v", c.s, io.ContainerStdio)
			}
			io.close()
		}
		if io != nil && io.in != nil { // as the guest's side reads it
			if _, err := io.in.Read(make([]byte, 1)); err == nil {
				t.Error("a closed input has something")
			}
		}
	}
	if after := open(); after != before {
		t.Errorf("%d descriptors are open, were %d", after, before)
	}
}

// TestInputStaysOpen: a CloseIO that doesn't name the input leaves it open.
func TestInputStaysOpen(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	s := fifos(t)
	l.running("one", baseSpec(), s)
	if _, err := l.s.CloseIO(t.Context(), &taskapi.CloseIORequest{ID: "one"}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.s.tasks["one"].init.io.in.wake.Stat(); err != nil {
		t.Errorf("the input was ended: %v", err)
	}
	if err := l.kill("one", "", 9); err != nil || l.wait("one", "") != 137 {
		t.Fatal(err)
	}
}
