//go:build linux

package hostdir

import "golang.org/x/sys/unix"

// A guest that carries the kernel's messages with a program in Go opens files of the directory too, and Go registers
// each with epoll in a call that its scheduler doesn't see: if the kernel asks the server about the file then
// (FUSE_POLL), the program that would carry the question is blocked. Once poll is answered with ENOSYS the kernel asks
// no more. So the guest polls Options.PollName first, before anybody else opens a file; Polled tells that it did.
//
// See https://github.com/hanwen/go-fuse and https://github.com/golang/go/issues/21014.

const (
	opPoll opcode = 40
	// pollID is the node of that file, above those that are counted.
	pollID = 1 << 63
)

// Polled is closed once Options.PollName was polled.
func (s *Server) Polled() <-chan struct{} { return s.polled }

func (s *Server) pollable(parent uint64, name string) bool {
	if parent != rootID || name != s.pollName || name == "" {
		return false
	}
	select {
	case <-s.polled:
		return false
	default:
		return true
	}
}

// poll answers about it: an empty file that may be read.
func (s *Server) poll(r request, out []byte) ([]byte, error) {
	const fh = 0
	switch r.op {
	case opLookup:
		return pollAttr(put64(out, pollID, 0, 0, 0, 0)), nil // not to be kept
	case opGetattr:
		return pollAttr(put64(out, 0, 0)), nil
	case opOpen:
		return put32(put64(out, fh), 0, 0), nil
	case opFlush, opRelease:
		return out, nil // flush is for all files: ENOSYS would end it
	case opPoll:
		s.pollOnce.Do(func() { close(s.polled) })
		return nil, unix.ENOSYS
	default:
		return nil, unix.EACCES
	}
}

func pollAttr(out []byte) []byte {
	out = put64(out, pollID, 0, 0, 0, 0, 0)          // inode, size, blocks, times
	out = put32(out, 0, 0, 0, unix.S_IFREG|0o444, 1) // nanoseconds, mode, links
	return put32(out, 0, 0, 0, 4096, 0)              // owner, device, block size, flags
}
