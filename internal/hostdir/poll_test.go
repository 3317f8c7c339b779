//go:build linux

package hostdir

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestPollIsRefusedOnce: the file that is polled is there until it was, is empty, and no other can be polled for.
func TestPollIsRefusedOnce(t *testing.T) {
	t.Parallel()
	const probe = ".probe"
	dir := t.TempDir()
	put(t, dir, map[string]string{"d/x": ""})
	g := newGuest(t, dir, Options{PollName: probe})
	d := g.must(g.walk("d"))
	isThere := func(parent uint64) error { _, err := g.ask(opLookup, parent, name(probe)); return err }
	want(t, "the file in a directory", isThere(d), unix.ENOENT)
	b, err := g.ask(opLookup, rootID, name(probe))
	if err != nil || len(b) != entryBytes || order.Uint64(b) != pollID {
		t.Fatalf("the file: %x, %v", b, err)
	}
	b, err = g.ask(opGetattr, pollID, put32(put64(nil, 0), 0, 0))
	if a := g.attrs(b, err); a.size != 0 || a.mode != unix.S_IFREG|0o444 {
		t.Errorf("the file is %+v", a)
	}
	b, err = g.ask(opOpen, pollID, put32(nil, 0, 0))
	if err != nil || len(b) != 16 {
		t.Errorf("opened: %x, %v", b, err)
	}
	for _, op := range []opcode{opRead, opWrite, opSetattr, opUnlink} {
		_, err := g.ask(op, pollID, make([]byte, 64))
		want(t, "another request", err, unix.EACCES)
	}
	select {
	case <-g.s.Polled():
		t.Error("polled before it was")
	default:
	}
	for range 2 {
		_, err = g.ask(opPoll, pollID, make([]byte, 24))
		want(t, "poll", err, unix.ENOSYS)
	}
	<-g.s.Polled()
	for _, op := range []opcode{opFlush, opRelease} {
		_, err := g.ask(op, pollID, make([]byte, 24)) // ENOSYS to flush would be for every file
		want(t, "close", err, nil)
	}
	want(t, "the file afterwards", isThere(rootID), unix.ENOENT)
	want(t, "without a name", func() error { _, err := newGuest(t, dir, Options{}).ask(opLookup, rootID, name(probe)); return err }(), unix.ENOENT)
}
