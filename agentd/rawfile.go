//go:build linux

package agentd

import (
	"io"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// rawFile is a non-blocking descriptor that bypasses Go's runtime. On an emulated CPU, the
// runtime's work around a system call that may block (it wakes its monitor thread and sets
// timers) and its poller cost more than the call: without them a message took half the time. A
// raw call keeps a P from other goroutines while it lasts, so it waits for at most carryWait;
// after that the wait goes through the runtime.
type rawFile struct {
	fd   int
	quit int // an eventfd that ends reading and waiting
}

// carryWait bounds a raw wait for the next message. A reply takes a fraction of it.
const carryWait = 4 * time.Millisecond

// newRawFile takes over fd, which must not be known to the runtime.
func newRawFile(fd int) (*rawFile, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	quit, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("eventfd", err)
	}
	return &rawFile{fd, quit}, nil
}

// stop makes Read and Write return os.ErrClosed once they would wait.
func (f *rawFile) stop() { _, _ = unix.Write(f.quit, []byte{1, 0, 0, 0, 0, 0, 0, 0}) }

// Close comes after Read and Write.
func (f *rawFile) Close() error {
	_ = unix.Close(f.quit) // nothing is written to it
	return unix.Close(f.fd)
}

// portBufferBytes is the size of the buffers that the guest's kernel gives the device of a console port (PAGE_SIZE). A
// read takes one of them, whatever its size.
const portBufferBytes = 4096

// maxPortBuffers bounds one readv(2) (UIO_MAXIOV is 1024).
const maxPortBuffers = 64

// portReader reads a console port: a message of one buffer with read(2), and the rest of a longer one with as many of the
// kernel's buffers in one call as there are. A readv(2) of such a file is a read for each part, up to the first that is
// not filled.
type portReader struct {
	*rawFile
	parts [maxPortBuffers]unix.Iovec // Read is called by one goroutine at a time
	more  bool                       // the last buffer was full
}

// Read implements io.Reader.
func (r *portReader) Read(b []byte) (n int, err error) {
	if r.more {
		n, err = r.end(r.call(unix.SYS_READV, unix.POLLIN, unsafe.Pointer(&r.parts), r.split(b)))
	} else {
		n, err = r.rawFile.Read(b[:min(len(b), portBufferBytes)])
	}
	r.more = n > 0 && n%portBufferBytes == 0
	return n, err
}

// split makes parts of b, and counts them.
func (r *portReader) split(b []byte) (count int) {
	for ; count < len(r.parts) && len(b) > 0; count++ {
		part := b[:min(len(b), portBufferBytes)]
		r.parts[count].Base = &part[0]
		r.parts[count].SetLen(len(part))
		b = b[len(part):]
	}
	return count
}

// Read implements io.Reader.
func (f *rawFile) Read(b []byte) (int, error) {
	return f.end(f.call(unix.SYS_READ, unix.POLLIN, unsafe.Pointer(unsafe.SliceData(b)), len(b)))
}

// end makes a read of nothing the end of the stream.
func (f *rawFile) end(n int, err error) (int, error) {
	if n == 0 && err == nil {
		err = io.EOF
	}
	return n, err
}

// Write implements io.Writer.
func (f *rawFile) Write(b []byte) (sent int, err error) {
	for sent < len(b) && err == nil {
		var n int
		n, err = f.call(unix.SYS_WRITE, unix.POLLOUT, unsafe.Pointer(&b[sent]), len(b)-sent)
		sent += n
	}
	return sent, err
}

func (f *rawFile) call(number uintptr, event int16, at unsafe.Pointer, count int) (int, error) {
	for {
		n, _, errno := unix.RawSyscall(number, uintptr(f.fd), uintptr(at), uintptr(count))
		switch errno {
		case 0:
			return int(n), nil
		case unix.EINTR:
		case unix.EAGAIN:
			if err := f.wait(event); err != nil {
				return 0, err
			}
		default:
			return 0, errno
		}
	}
}

func (f *rawFile) wait(event int16) error {
	fds := [2]unix.PollFd{{Fd: int32(f.fd), Events: event}, {Fd: int32(f.quit), Events: unix.POLLIN}}
	limit := unix.NsecToTimespec(int64(carryWait))
	n, _, errno := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&fds)), uintptr(len(fds)), uintptr(unsafe.Pointer(&limit)), 0, 0, 0)
	var err error
	switch {
	case errno != 0:
		err = errno
	case n == 0:
		_, err = unix.Ppoll(fds[:], nil, nil)
	}
	if err != nil && err != unix.EINTR {
		return err
	}
	if fds[1].Revents != 0 {
		return os.ErrClosed
	}
	return nil
}
