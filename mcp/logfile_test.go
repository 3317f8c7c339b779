package mcp

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestI11_LogFilesAreShared: servers write whole lines to one file, which is set aside where it is full, once.
func TestI11_LogFilesAreShared(t *testing.T) {
	t.Parallel()
	home := newHome(t)
	first, err := OpenLogFile(home)
	if err != nil {
		t.Fatal(err)
	}
	second, err := OpenLogFile(home)
	if err != nil {
		t.Fatal(err)
	}
	line := []byte(strings.Repeat("x", 2*maxLogLine) + "\n")
	for range 3 * maxLogFile / maxLogLine {
		for _, l := range []interface{ Write([]byte) (int, error) }{first, second} {
			if n, err := l.Write(line); n != len(line) || err != nil {
				t.Fatal(n, err)
			}
		}
	}
	if err := errors.Join(first.Close(), second.Close()); err != nil {
		t.Fatal(err)
	}
	names, err := filepath.Glob(filepath.Join(home.Dir(), LogFile+"*"))
	if err != nil || len(names) != 2 {
		t.Fatalf("%q, %v; want the file and one that was full", names, err)
	}
	begin := fmt.Appendf(nil, "pid=%d xxx", os.Getpid())
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil || len(b) > 2*maxLogFile {
			t.Errorf("%s: %d bytes, %v", name, len(b), err)
		}
		for l := range bytes.Lines(b) {
			if !bytes.HasPrefix(l, begin) || !bytes.HasSuffix(l, []byte("x…\n")) || len(l) > maxLogLine+len(begin) {
				t.Fatalf("a line of %d bytes: %.50q", len(l), l)
			}
		}
	}
}

// TestI14_LogsFollowNoLink, nor wait for the reader of a pipe.
func TestI14_LogsFollowNoLink(t *testing.T) {
	t.Parallel()
	home := newHome(t)
	path, other := filepath.Join(home.Dir(), LogFile), filepath.Join(t.TempDir(), "x")
	for _, put := range []func() error{func() error { return os.Symlink(other, path) }, func() error { return unix.Mkfifo(path, 0o600) }} {
		if err := put(); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenLogFile(home); err == nil {
			t.Error("it was opened")
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Lstat(other); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the link was followed: %v", err)
	}
	l, err := OpenLogFile(home) // the twin
	if err == nil {
		_, err = l.Write([]byte("a line\n"))
	}
	if b, readErr := os.ReadFile(path); err != nil || !strings.HasSuffix(string(b), " a line\n") {
		t.Errorf("%q, %v, %v", b, err, readErr)
	}
}
