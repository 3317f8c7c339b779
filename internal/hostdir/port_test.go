//go:build linux

package hostdir

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// numbered is a message as it travels over a port.
func numbered(number uint32, message []byte) []byte { return append(put32(nil, number), message...) }

// TestI11_PortBoundsMessages: a message that is longer than any, or shorter than its head, ends the port and all of its
// directories, whether or not there is one of that number; a longest one doesn't.
func TestI11_PortBoundsMessages(t *testing.T) {
	t.Parallel()
	message := func(length uint32) []byte {
		return numbered(9, append(put32(nil, length), make([]byte, maxMessage)...))
	}
	for name, tt := range map[string]struct {
		sent []byte
		want error
	}{
		"longest":  {numbered(9, append(put32(nil, maxMessage), make([]byte, maxMessage-4)...)), io.EOF},
		"too long": {message(maxMessage + 1), errProtocol},
		"all ones": {message(1<<32 - 1), errProtocol},
		"empty":    {message(0), errProtocol},
		"short":    {message(headerBytes - 1), errProtocol},
		"cut head": {numbered(9, make([]byte, 3)), io.EOF},
		"cut":      {numbered(9, message(headerBytes))[:20], io.EOF},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := NewPort(struct {
				io.Reader
				io.Writer
			}{bytes.NewReader(tt.sent), io.Discard})
			c := p.Open()
			if err := p.Serve(); !errors.Is(err, tt.want) {
				t.Errorf("ended with %v, want %v", err, tt.want)
			}
			if _, err := c.Recv(); err != io.EOF { //nolint:errorlint // it is returned as it is
				t.Errorf("the directory goes on: %v", err)
			}
			if _, err := p.Open().Recv(); err != io.EOF { //nolint:errorlint // the same
				t.Errorf("a directory of a port that has ended: %v", err)
			}
		})
	}
}

// TestI14_PortKeepsDirectoriesApart serves two directories over one port: a number leads to its own and to nothing
// when it was closed, and what a guest knows of one is nothing in the other.
func TestI14_PortKeepsDirectoriesApart(t *testing.T) {
	t.Parallel()
	near, far := net.Pipe()
	p := NewPort(near)
	ended := make(chan error, 3)
	var conns []*PortConn
	var ids []uint64
	ask := func(number uint32, op opcode, node uint64, body []byte) (errno unix.Errno, reply []byte) {
		t.Helper()
		if _, err := far.Write(numbered(number, message(op, node, body))); err != nil {
			t.Fatal(err)
		}
		head := make([]byte, numberBytes+replyBytes)
		if _, err := io.ReadFull(far, head); err != nil {
			t.Fatal(err)
		}
		reply = make([]byte, order.Uint32(head[numberBytes:])-replyBytes)
		if _, err := io.ReadFull(far, reply); err != nil {
			t.Fatal(err)
		}
		if got := order.Uint32(head); got != number {
			t.Errorf("the reply is of directory %d, want %d", got, number)
		}
		return unix.Errno(-int32(order.Uint32(head[numberBytes+4:]))), reply
	}
	for _, file := range []string{"one", "two"} {
		dir := t.TempDir()
		put(t, dir, map[string]string{file: file})
		s, err := New(dir, Options{})
		if err != nil {
			t.Fatal(err)
		}
		c := p.Open()
		conns = append(conns, c)
		go func() { ended <- s.Serve(context.Background(), c); _ = s.Close() }()
	}
	served := make(chan error, 1)
	go func() { served <- p.Serve() }()
	for i, file := range []string{"one", "two"} {
		if errno, _ := ask(conns[i].Number, opInit, 0, greeting()); errno != 0 {
			t.Fatal(errno)
		}
		_, entry := ask(conns[i].Number, opLookup, rootID, name(file))
		ids = append(ids, order.Uint64(entry))
		if _, other := ask(conns[i].Number, opLookup, rootID, name([]string{"two", "one"}[i])); order.Uint64(other) != 0 {
			t.Errorf("%s has the other's file", file)
		}
	}
	conns[0].Close()
	if err := <-ended; err != io.EOF { //nolint:errorlint // it is returned as it is
		t.Errorf("the closed one ended with %v", err)
	}
	if err := conns[0].Send(make([]byte, replyBytes)); !errors.Is(err, os.ErrClosed) {
		t.Errorf("a reply of the closed one: %v", err)
	}
	for _, number := range []uint32{conns[0].Number, 0, 77} { // nobody answers
		if _, err := far.Write(numbered(number, message(opGetattr, ids[0], make([]byte, 16)))); err != nil {
			t.Fatal(err)
		}
	}
	if errno, _ := ask(conns[1].Number, opGetattr, ids[1], make([]byte, 16)); errno != 0 {
		t.Errorf("the other directory: %v", errno)
	}
	_ = far.Close()
	for _, c := range []chan error{ended, served} {
		if err := <-c; err != io.EOF { //nolint:errorlint // the same
			t.Errorf("ended with %v", err)
		}
	}
}

// FuzzPort sends any bytes to a port of a writable and a read-only directory: it ends as a stream does, and touches nothing
// else.
func FuzzPort(f *testing.F) {
	hello := numbered(1, message(opInit, 0, greeting()))
	f.Add(append(hello, numbered(1, message(opLookup, rootID, name("note")))...))
	f.Add(append(numbered(2, message(opInit, 0, greeting())), numbered(2, message(opMkdir, rootID, append(put32(nil, 0o755, 0), name("new")...)))...))
	f.Add(append(hello, 1, 0, 0, 0, 255, 255, 255, 255))
	f.Fuzz(func(t *testing.T, sent []byte) {
		top := t.TempDir()
		put(t, top, map[string]string{"writable/note": "note", "fixed/note": "note"})
		p := NewPort(struct {
			io.Reader
			io.Writer
		}{bytes.NewReader(sent), io.Discard})
		ended := make(chan error, 2)
		for _, dir := range []string{"writable", "fixed"} {
			s, err := New(filepath.Join(top, dir), Options{Writable: dir == "writable"})
			if err != nil {
				t.Fatal(err)
			}
			c := p.Open()
			go func() {
				defer c.Close()
				err := s.Serve(context.Background(), c)
				ended <- errors.Join(err, s.Close())
			}()
		}
		if err := p.Serve(); !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, errProtocol) {
			t.Errorf("the port ended with %v", err)
		}
		for range 2 {
			if err := <-ended; !errors.Is(err, io.EOF) && !errors.Is(err, errProtocol) {
				t.Errorf("a directory ended with %v", err)
			}
		}
		if b, err := os.ReadFile(filepath.Join(top, "fixed", "note")); err != nil || string(b) != "note" {
			t.Errorf("read-only: %q, %v", b, err)
		}
		if left, err := os.ReadDir(filepath.Join(top, "fixed")); err != nil || len(left) != 1 {
			t.Errorf("read-only: %v, %v", left, err)
		}
	})
}
