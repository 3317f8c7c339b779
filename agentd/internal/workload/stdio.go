//go:build linux

package workload

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// stdio holds both ends of a process's streams while it is started.
type stdio struct {
	child                 [3]uintptr
	stdin, stdout, stderr *os.File
	childFDs              []int
}

func openStdio(c Command, id identity) (*stdio, error) {
	s := &stdio{}
	err := s.open(c, id)
	if err != nil {
		s.closeChildEnds()
		s.closeOurEnds()
		return nil, fmt.Errorf("open the streams of %s: %w", c.Argv[0], err)
	}
	return s, nil
}

func (s *stdio) open(c Command, id identity) error {
	if c.TTY {
		master, slave, err := openPTY(c.pts, c.Size, id.uid)
		if err != nil {
			return err
		}
		s.stdin, s.stdout = master, master
		s.childFDs = append(s.childFDs, slave)
		s.child = [3]uintptr{uintptr(slave), uintptr(slave), uintptr(slave)}
		return nil
	}
	if err := s.openStdin(c.Stdin, id); err != nil {
		return err
	}
	for i, ours := range []**os.File{&s.stdout, &s.stderr} {
		r, w, err := s.pipe(id)
		if err != nil {
			return err
		}
		s.childFDs = append(s.childFDs, w)
		s.child[1+i] = uintptr(w)
		if *ours, err = pollable(r, "output"); err != nil {
			return err
		}
	}
	return nil
}

func (s *stdio) openStdin(wanted bool, id identity) error {
	if !wanted {
		fd, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		s.childFDs = append(s.childFDs, fd)
		s.child[0] = uintptr(fd)
		return nil
	}
	r, w, err := s.pipe(id)
	if err != nil {
		return err
	}
	s.childFDs = append(s.childFDs, r)
	s.child[0] = uintptr(r)
	s.stdin, err = pollable(w, "stdin")
	return err
}

// pipe gives both ends to the user, who may open /dev/stdout by name.
func (s *stdio) pipe(id identity) (r, w int, err error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return -1, -1, err
	}
	_ = unix.Fchown(p[0], int(id.uid), int(id.gid)) // without it only /dev/stdout by name fails
	return p[0], p[1], nil
}

// pollable makes fd a file whose reads and writes have deadlines.
func pollable(fd int, name string) (*os.File, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

func (s *stdio) closeChildEnds() {
	for _, fd := range s.childFDs {
		unix.Close(fd)
	}
	s.childFDs = nil
}

func (s *stdio) closeOurEnds() {
	for _, f := range []*os.File{s.stdin, s.stdout, s.stderr} {
		if f != nil {
			f.Close()
		}
	}
}
