package main

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// opened are the standard streams as Go opened them, kept here since one that is collected would be closed.
var opened = [...]*os.File{os.Stdin, os.Stdout, os.Stderr}

// waitOnStreams lets the standard streams wait where the kernel says "try again". A stream is often one file description
// with other programs (npx's, a shell's), and any of them may make it non-blocking at any time, as Node.js does. Go decides
// only when it opens a file whether it can wait for it, and what was blocking then fails later with EAGAIN.
func waitOnStreams() {
	for i, f := range []**os.File{&os.Stdin, &os.Stdout, &os.Stderr} {
		fd := int(opened[i].Fd())
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
		if err != nil || flags&unix.O_NONBLOCK != 0 || syscall.SetNonblock(fd, true) != nil {
			continue // closed, or Go waits for it anyway
		}
		*f = os.NewFile(uintptr(fd), opened[i].Name())
		_ = syscall.SetNonblock(fd, false) // as the others expect it
	}
}
