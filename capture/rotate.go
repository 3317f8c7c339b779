package capture

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
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

// rotating is a file that is renamed away when it is too large or too old.
type rotating struct {
	path    string
	options *Options
	f       *os.File
	direct  *os.File // the same file past the page cache; nil for none
	size    int64
	opened  time.Time
}

func createRotating(path string, o *Options) (*rotating, error) {
	f, err := openRegular(path)
	if err != nil {
		return nil, fmt.Errorf("the capture can't be made: %w", err)
	}
	r := &rotating{path: path, options: o, f: f}
	known := false
	for _, part := range []string{path, path + ".1"} { // a kill between rename and open leaves the second alone
		if o.Resume && !known {
			o.recording, known = recordingOf(part)
		}
	}
	if !known {
		o.recording = rand.Text()
	}
	if o.Resume {
		err = r.rotate(nil)
	} else {
		err = r.begin(nil)
	}
	if err != nil {
		return nil, fmt.Errorf("the capture can't be made: %w", errors.Join(err, r.close()))
	}
	return r, nil
}

func (r *rotating) open(names []byte) error {
	f, err := openLocked(r.path)
	if err != nil {
		return err
	}
	r.f = f
	return r.begin(names)
}

// begin makes the open file an empty part.
func (r *rotating) begin(names []byte) error {
	if err := r.f.Truncate(0); err != nil && !errors.Is(err, unix.EINVAL) { // a device has no length
		return errors.Join(err, r.drop())
	}
	r.direct, r.size, r.opened = openDirect(r.f), 0, r.options.now()
	if err := r.append(append(preamble(r.options), names...)); err != nil {
		// Without its head nobody can read what would follow, once the disk has room again.
		return errors.Join(err, r.drop())
	}
	return nil
}

// drop closes the file, to open it again at the next write.
func (r *rotating) drop() error {
	err := r.close()
	r.f, r.direct = nil, nil
	return err
}

// appendDirect is append past the page cache. Blocks of padding before and behind b make that possible: it
// reports false, with nothing written, where it is not.
func (r *rotating) appendDirect(b []byte) (ok bool, err error) {
	behind := padding(int64(len(b)))
	if r.direct == nil || len(b) < directMin || !aligned(b) || cap(b)-len(b) < behind {
		return false, nil
	}
	if before := padding(r.size); before > 0 {
		if err := r.append(padded(nil, before)); err != nil {
			return false, err
		}
	}
	b = padded(b, behind)
	if _, err := r.direct.WriteAt(b, r.size); err != nil {
		// Some file systems refuse here and not before. A full disk says so again.
		err = errors.Join(r.f.Truncate(r.size), r.direct.Close())
		r.direct = nil
		return false, err
	}
	r.size += int64(len(b))
	return true, nil
}

// append leaves the file as it was if not all of b could be written: half a block would make what is
// written later, when the disk has room again, unreadable.
func (r *rotating) append(b []byte) error {
	if _, err := r.f.WriteAt(b, r.size); err != nil {
		return errors.Join(err, r.f.Truncate(r.size))
	}
	r.size += int64(len(b))
	return nil
}

// write cuts blocks where the file is full.
//
// While the disk is behind it is given nothing directly: the page cache takes a burst that the disk can't.
func (r *rotating) write(blocks []byte, names func() []byte, calm bool) error {
	if r.f == nil { // an earlier rotation went wrong
		f, err := openLocked(r.path)
		if err != nil {
			return err
		}
		r.f = f
		if err := r.rotate(names()); err != nil {
			return err
		}
	}
	for len(blocks) > 0 {
		n := fitting(blocks, r.options.MaxBytes-r.size)
		if n < len(blocks) && !worthAPart(blocks[n:]) {
			n = len(blocks)
		}
		direct := calm && n == len(blocks) && r.size+int64(n)+4*directUnit <= r.options.MaxBytes
		old := r.options.MaxAge > 0 && r.options.now().Sub(r.opened) >= r.options.MaxAge
		if n == 0 || old && worthAPart(blocks) {
			if err := r.rotate(names()); err != nil {
				return err
			}
			// A file takes one block at least, however small MaxBytes is.
			n = max(fitting(blocks, r.options.MaxBytes-r.size), int(order.Uint32(blocks[4:])))
			direct = false
		}
		if direct {
			if done, err := r.appendDirect(blocks); done || err != nil {
				return err
			}
		}
		if err := r.append(blocks[:n]); err != nil {
			return err
		}
		blocks = blocks[n:]
	}
	return nil
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

// fitting is the length of the blocks at the start of b that fit into room.
func fitting(b []byte, room int64) int {
	if int64(len(b)) <= room {
		return len(b)
	}
	n := 0
	for n < len(b) {
		next := n + int(order.Uint32(b[n+4:]))
		if int64(next) > room {
			break
		}
		n = next
	}
	return n
}

// rotate begins a new part. The file that is open stays so, and locked, until it has its new name: nobody else takes it
// for a file that is free. A part without packets is written over, since each one that is kept costs an older one.
func (r *rotating) rotate(names []byte) error {
	if !worthKeeping(r.f) {
		if r.direct != nil {
			_ = r.direct.Close()
		}
		return r.begin(names)
	}
	var err, stuck error
	for i := r.options.Keep; i > 0; i-- {
		from := r.path
		if i > 1 {
			from = fmt.Sprintf("%s.%d", r.path, i-1)
		}
		if e := os.Rename(from, fmt.Sprintf("%s.%d", r.path, i)); e != nil && !errors.Is(e, os.ErrNotExist) {
			err, stuck = errors.Join(err, e), e
		} else {
			stuck = nil
		}
	}
	if err = errors.Join(err, r.drop()); stuck != nil {
		return err // the file has its name still: it is not written over
	}
	return errors.Join(err, r.open(names))
}

func (r *rotating) close() error {
	if r.f == nil {
		return nil
	}
	err := unlockAndClose(r.f)
	if r.direct != nil {
		err = errors.Join(err, r.direct.Close())
	}
	return err
}

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
