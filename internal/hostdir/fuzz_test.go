//go:build linux

package hostdir

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// script is a connection that sends the requests that a fuzzer wrote, one after another.
type script struct {
	t    *testing.T
	rest []byte
	sent bool
}

// Recv takes a byte as the length of the next request's body; the header's length is made to fit, as a guest's kernel
// does.
func (s *script) Recv() ([]byte, error) {
	if !s.sent {
		s.sent = true
		return message(opInit, 0, greeting()), nil
	}
	if len(s.rest) < 4 {
		return nil, io.EOF
	}
	length, op, node := int(s.rest[0]), opcode(s.rest[1]%54), uint64(s.rest[2]%16)
	s.rest = s.rest[3:]
	if op == opFallocate {
		op = opFsync // it would fill the disk
	}
	length = min(length, len(s.rest))
	body := s.rest[:length]
	s.rest = s.rest[length:]
	return message(op, node, body), nil
}

func (s *script) Send(b []byte) error {
	if len(b) < replyBytes || len(b) > maxMessage || int(order.Uint32(b)) != len(b) {
		s.t.Errorf("reply of %d bytes: %x", len(b), b[:min(len(b), replyBytes)])
	}
	return nil
}

// FuzzServe sends requests to a server of a writable directory: it neither crashes nor touches what lies outside.
func FuzzServe(f *testing.F) {
	f.Fuzz(func(t *testing.T, requests []byte) {
		top := t.TempDir()
		put(t, top, map[string]string{"served/a/b/note": "note", "private/note": "private"})
		if err := os.Symlink("../private", filepath.Join(top, "served", "link")); err != nil {
			t.Fatal(err)
		}
		s, err := New(filepath.Join(top, "served"), Options{Writable: true, Hide: []string{"a/b"}})
		if err != nil {
			t.Fatal(err)
		}
		s.maxNodes, s.maxHandles = 50, 20
		if err := s.Serve(context.Background(), &script{t: t, rest: requests}); !errors.Is(err, io.EOF) && !errors.Is(err, errProtocol) {
			t.Errorf("ended with %v", err)
		}
		if s.count > 50 || len(s.handles) > 20 || len(s.nodes) > s.count {
			t.Errorf("%d nodes, %d handles", s.count, len(s.handles))
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if b, err := os.ReadFile(filepath.Join(top, "private", "note")); err != nil || string(b) != "private" {
			t.Errorf("outside: %q, %v", b, err)
		}
		if b, err := os.ReadFile(filepath.Join(top, "served", "a", "b", "note")); err == nil && string(b) != "note" {
			t.Errorf("hidden: %q, %v", b, err)
		}
		if left, err := os.ReadDir(top); err != nil || len(left) != 2 {
			t.Errorf("outside: %v, %v", left, err)
		}
	})
}
