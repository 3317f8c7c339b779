package capture

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/internal/rotate"
)

// output is where blocks go.
type output interface {
	// write takes whole blocks. names gives the name records for the head of a new file. calm says that
	// the disk keeps up.
	write(blocks []byte, names func() []byte, calm bool) error
	close() error
}

// stream is an output that is never rotated. Its head goes before the first block.
type stream struct {
	w    io.Writer
	head []byte
}

// rotating is a file that is set aside when it is too large or too old.
type rotating struct {
	rotate.File
	options *Options
	direct  *os.File // the same file past the page cache; nil for none
	opened  time.Time
}

func createRotating(path string, o *Options) (*rotating, error) {
	f, err := openRegular(path)
	if err != nil {
		return nil, fmt.Errorf("the capture can't be made: %w", err)
	}
	r := newRotating(path, o)
	r.File.File = f
	known := false
	for _, part := range []string{path, rotate.Name(path, 1)} { // a kill between rename and open leaves the second alone
		if o.Resume && !known {
			o.recording, known = recordingOf(part)
		}
	}
	if !known {
		o.recording = rand.Text()
	}
	if err := r.rotate(nil); err != nil { // what somebody else wrote there stays too, as an older file
		return nil, fmt.Errorf("the capture can't be made: %w", errors.Join(err, r.close()))
	}
	return r, nil
}

func newRotating(path string, o *Options) *rotating {
	return &rotating{File: rotate.File{Path: path, Max: o.MaxBytes, Keep: o.Keep, Opener: openLocked, Closer: unlockAndClose}, options: o}
}

// begin makes the open file an empty part.
func (r *rotating) begin(names []byte) error {
	if err := r.Truncate(0); err != nil && !errors.Is(err, unix.EINVAL) { // a device has no length
		return errors.Join(err, r.close())
	}
	r.direct, r.Size, r.opened = openDirect(r.File.File), 0, r.options.now()
	if err := r.Append(append(preamble(r.options), names...)); err != nil {
		// Without its head nobody can read what would follow, once the disk has room again.
		return errors.Join(err, r.close())
	}
	return nil
}

// appendDirect is append past the page cache. Blocks of padding before and behind b make that possible: it
// reports false, with nothing written, where it is not.
func (r *rotating) appendDirect(b []byte) (ok bool, err error) {
	behind := padding(int64(len(b)))
	if r.direct == nil || len(b) < directMin || !aligned(b) || cap(b)-len(b) < behind {
		return false, nil
	}
	if before := padding(r.Size); before > 0 {
		if err := r.Append(padded(nil, before)); err != nil {
			return false, err
		}
	}
	b = padded(b, behind)
	if _, err := r.direct.WriteAt(b, r.Size); err != nil {
		// Some file systems refuse here and not before. A full disk says so again.
		err = errors.Join(r.Truncate(r.Size), r.direct.Close())
		r.direct = nil
		return false, err
	}
	r.Size += int64(len(b))
	return true, nil
}

// write cuts blocks where the file is full.
//
// While the disk is behind it is given nothing directly: the page cache takes a burst that the disk can't.
func (r *rotating) write(blocks []byte, names func() []byte, calm bool) error {
	rotate := func() error { return r.rotate(names()) }
	if r.File.File == nil { // an earlier rotation went wrong
		if err := r.Open(); err != nil {
			return err
		}
		if err := rotate(); err != nil {
			return err
		}
	}
	if !worthAPart(blocks) {
		return r.Append(blocks)
	}
	if r.options.MaxAge > 0 && r.options.now().Sub(r.opened) >= r.options.MaxAge {
		if err := rotate(); err != nil {
			return err
		}
	}
	if calm && r.Size+int64(len(blocks))+4*directUnit <= r.Max {
		if done, err := r.appendDirect(blocks); done || err != nil {
			return err
		}
	}
	_, err := r.Write(blocks, nextBlocks, rotate)
	return err
}

// nextBlocks is the length of the first block and of those behind it that are worth no part.
func nextBlocks(b []byte) int {
	n := int(order.Uint32(b[4:]))
	for n < len(b) && !worthAPart(b[n:n+int(order.Uint32(b[n+4:]))]) {
		n += int(order.Uint32(b[n+4:]))
	}
	return n
}

// worthAPart reports whether there are packets or keys among blocks. Names and statistics alone stay in the file that is
// full: a part of their own would push an older one out.
func worthAPart(b []byte) bool {
	for len(b) > 0 {
		if kind := order.Uint32(b); kind == blockPacket || kind == blockSecrets {
			return true
		}
		b = b[order.Uint32(b[4:]):]
	}
	return false
}

// rotate begins a new part. The file that is open stays so, and locked, until it has its new name: nobody else takes it
// for a file that is free. A part without packets is written over, since each one that is kept costs an older one.
func (r *rotating) rotate(names []byte) error {
	if !worthKeeping(r.File.File) {
		return errors.Join(r.closeDirect(), r.begin(names))
	}
	if err := errors.Join(r.closeDirect(), r.SetAside()); err != nil {
		return err
	}
	if err := r.Open(); err != nil {
		return err
	}
	return r.begin(names)
}

func (r *rotating) closeDirect() error {
	if r.direct == nil {
		return nil
	}
	err := r.direct.Close()
	r.direct = nil
	return err
}

func (r *rotating) close() error { return errors.Join(r.closeDirect(), r.Close()) }

func (s *stream) write(b []byte, _ func() []byte, _ bool) error {
	if s.head != nil {
		if _, err := s.w.Write(s.head); err != nil {
			return err
		}
		s.head = nil
	}
	_, err := s.w.Write(b)
	return err
}

func (s *stream) close() error {
	if c, ok := s.w.(io.Closer); ok {
		return c.Close()
	}
	return nil
}
