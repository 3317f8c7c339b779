package audit

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// pipeIn makes a named pipe.
func pipeIn(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestI1_AuditPipesNeedAReader: a pipe that nobody reads from took every line and lost it, without a word.
func TestI1_AuditPipesNeedAReader(t *testing.T) {
	t.Parallel()
	path := pipeIn(t)
	swallow, err := os.OpenFile(path, os.O_RDWR, 0) // as it was opened before: nobody else is there, and it takes all
	if err != nil {
		t.Fatal(err)
	}
	if _, err := swallow.WriteString("lost\n"); err != nil {
		t.Fatal(err)
	}
	if err := swallow.Close(); err != nil {
		t.Fatal(err)
	}
	if l, err := OpenLog(path, Options{}); !errors.Is(err, unix.ENXIO) || !strings.Contains(err.Error(), "start the pipe's reader first") {
		t.Fatalf("log %v, %v; want an error that says that nobody reads", l, err)
	}
	reader, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan []byte, 1)
	l, err := OpenLog(path, Options{MaxBytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		b, _ := io.ReadAll(reader)
		got <- b
	}()
	const lines = 100
	for range lines {
		l.Emit(Event{Time: noon, Kind: FlowOpen, Action: deny})
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(<-got, []byte("\n")); n != lines {
		t.Errorf("the reader got %d lines, want %d: a pipe is not rotated away", n, lines)
	}
	if info, err := os.Lstat(path); err != nil || info.Mode().Type() != os.ModeNamedPipe {
		t.Errorf("in the pipe's place is %v, %v", info, err)
	}
}

// TestI1_ALogEndsWithoutItsReader: a reader that takes nothing kept the log, and the sandbox with it, from ending.
func TestI1_ALogEndsWithoutItsReader(t *testing.T) {
	t.Parallel()
	for _, patience := range []time.Duration{time.Millisecond, time.Hour} { // the second is as without a bound
		path := pipeIn(t)
		reader, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		l, err := OpenLog(path, Options{})
		if err != nil {
			t.Fatal(err)
		}
		l.patience = patience
		const more = 4096 // lines than a pipe holds
		for range more {
			l.Emit(Event{Time: noon, Kind: FlowOpen, Action: deny, Message: strings.Repeat("m", 100)})
		}
		ended := make(chan error, 1)
		go func() { ended <- l.Close() }()
		if patience < time.Second {
			if err := <-ended; !errors.Is(err, os.ErrDeadlineExceeded) || l.Dropped() == 0 {
				t.Errorf("the end of a log that nobody read: %v, %d dropped; want an error and a count", err, l.Dropped())
			}
			_ = reader.Close()
			continue
		}
		read := make(chan int, 1)
		go func() {
			b, _ := io.ReadAll(reader)
			read <- bytes.Count(b, []byte("\n"))
		}()
		if err := <-ended; err != nil {
			t.Errorf("with a reader it ends with %v", err)
		}
		if n := <-read; n != more {
			t.Errorf("the reader got %d lines, want %d", n, more)
		}
	}
}
