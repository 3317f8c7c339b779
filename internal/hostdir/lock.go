//go:build linux

package hostdir

import (
	"context"
	"fmt"
	"math"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxLockFiles bounds the descriptors that hold locks of ranges: one for each
	// file and process of the guest.
	maxLockFiles = 512

	// maxRanges bounds the ranges that are locked at once, each of which takes some 200 bytes of the kernel's memory and
	// is passed by whoever looks for another of its file. The kernel has no bound of its own.
	maxRanges = 1 << 13

	// maxWaiters bounds how many requests wait for locks.
	maxWaiters = 256

	// lockPoll is how often a lock that somebody else holds is tried again:
	// waiting in the kernel can't be cancelled.
	lockPoll = 10 * time.Millisecond
)

// locks are those of the guest on the host's files. flock(2) is taken on the
// guest's handle. Locks of ranges belong to a process of the guest, and are
// taken as open file description locks on a descriptor for each of those, which
// excludes the host's processes as well.
type locks struct {
	maxFiles, maxRanges int

	mu      sync.Mutex
	files   map[lockOwner]*lockFile
	ranges  int                           // of all files
	waiting map[uint64]context.CancelFunc // by the request's number
}

// lockOwner names a file by its number: a guest may forget the node and keep the lock.
type lockOwner struct{ node, owner uint64 }

// lockFile holds the locks of one owner.
type lockFile struct {
	*os.File
	ranges []lockRange
	quiet  uint64 // the number of the quiet handle through which some were taken, or 0
}

type lockRange struct {
	start, end uint64 // the last byte
	kind       uint32
}

// with are the ranges that are locked once q is done, counted as the kernel does: those of one kind that meet are one.
func (f *lockFile) with(q lockRequest) []lockRange {
	after := make([]lockRange, 0, len(f.ranges)+2)
	now := lockRange{q.start, q.end, q.kind}
	for _, r := range f.ranges {
		switch {
		case r.kind == now.kind && r.start <= now.end+1 && now.start <= r.end+1:
			now.start, now.end = min(now.start, r.start), max(now.end, r.end)
		case r.end < q.start || r.start > q.end:
			after = append(after, r)
		default:
			if r.start < q.start {
				after = append(after, lockRange{r.start, q.start - 1, r.kind})
			}
			if r.end > q.end {
				after = append(after, lockRange{q.end + 1, r.end, r.kind})
			}
		}
	}
	if q.kind != unix.F_UNLCK {
		after = append(after, now)
	}
	return after
}

type lockRequest struct {
	fh, owner, start, end uint64
	kind, flags           uint32
}

func parseLock(body []byte) (lockRequest, error) {
	a := args{rest: body}
	l := lockRequest{fh: a.u64(), owner: a.u64(), start: a.u64(), end: a.u64(), kind: a.u32()}
	a.skip(4)
	l.flags = a.u32()
	if a.bad || l.start > l.end || l.end > math.MaxInt64 || l.kind > unix.F_UNLCK {
		return l, unix.EINVAL
	}
	return l, nil
}

// now answers GETLK and SETLK.
func (l *locks) now(s *Server, r request, out []byte) ([]byte, error) {
	q, err := parseLock(r.body)
	if err != nil {
		return nil, err
	}
	n, err := s.node(r.node)
	if err != nil {
		return nil, err
	}
	if r.op == opGetlk {
		return l.get(s, n, q, out)
	}
	err = l.set(s, n, q)
	if err == nil && q.kind != unix.F_UNLCK {
		s.notify(n)
	}
	return out, err
}

// set takes or gives back a lock, or says EAGAIN.
func (l *locks) set(s *Server, n *node, q lockRequest) error {
	h, err := s.handle(q.fh, n)
	if err != nil {
		return err
	}
	defer h.mu.RUnlock()
	if q.flags&lkFlock != 0 {
		how := map[uint32]int{unix.F_RDLCK: unix.LOCK_SH, unix.F_WRLCK: unix.LOCK_EX, unix.F_UNLCK: unix.LOCK_UN}[q.kind]
		return retry(func() error { return unix.Flock(h.fd(), how|unix.LOCK_NB) })
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	f, err := l.file(lockOwner{n.id, q.owner}, h, q.kind != unix.F_UNLCK)
	if f == nil || err != nil {
		return err
	}
	after := f.with(q)
	if more := len(after) - len(f.ranges); more > 0 && l.ranges+more > l.maxRanges {
		return unix.ENOLCK
	}
	lock := q.flock()
	if err := retry(func() error { return unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &lock) }); err != nil {
		return err
	}
	l.ranges += len(after) - len(f.ranges)
	f.ranges = after
	if h.quiet {
		f.quiet = h.id
	}
	return nil
}

// file finds the descriptor that holds an owner's locks, or makes it.
func (l *locks) file(o lockOwner, h *handle, make bool) (*lockFile, error) {
	if f := l.files[o]; f != nil || !make {
		return f, nil
	}
	if len(l.files) >= l.maxFiles {
		return nil, unix.ENOLCK
	}
	path := fmt.Sprintf("/proc/self/fd/%d", h.fd()) // the file may have no name any more
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		f, err = os.Open(path)
	}
	if err != nil {
		return nil, err
	}
	if l.files == nil {
		l.files = map[lockOwner]*lockFile{}
	}
	l.files[o] = &lockFile{File: f}
	return l.files[o], nil
}

// released gives back the locks that were taken through a quiet handle. It runs before the next message is handled,
// which may ask for such a lock.
func (l *locks) released(s *Server, r request) {
	a := args{rest: r.body}
	fh := a.u64()
	s.mu.Lock()
	h := s.handles[fh]
	s.mu.Unlock()
	if h == nil || h.node.id != r.node {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for o, f := range l.files {
		if f.quiet == h.id {
			l.remove(o)
		}
	}
}

func (q lockRequest) flock() unix.Flock_t {
	lock := unix.Flock_t{Type: int16(q.kind), Start: int64(q.start), Len: int64(q.end - q.start + 1)}
	if q.end == math.MaxInt64 {
		lock.Len = 0
	}
	return lock
}

func (l *locks) get(s *Server, n *node, q lockRequest, out []byte) ([]byte, error) {
	h, err := s.handle(q.fh, n)
	if err != nil {
		return nil, err
	}
	defer h.mu.RUnlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	fd := uintptr(h.fd())
	if f := l.files[lockOwner{n.id, q.owner}]; f != nil {
		fd = f.Fd()
	}
	lock := q.flock()
	if err := retry(func() error { return unix.FcntlFlock(fd, unix.F_OFD_GETLK, &lock) }); err != nil {
		return nil, err
	}
	end := uint64(lock.Start + lock.Len - 1)
	if lock.Len == 0 {
		end = math.MaxInt64
	}
	return put32(put64(out, uint64(lock.Start), end), uint32(lock.Type), 0), nil
}

// wait answers SETLKW once the lock can be had, or its process was interrupted.
// It returns false if as many wait as may.
func (l *locks) wait(ctx context.Context, s *Server, r request, work *sync.WaitGroup) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting == nil {
		l.waiting = map[uint64]context.CancelFunc{}
	}
	if s.readOnly || len(l.waiting) >= maxWaiters || l.waiting[r.unique] != nil {
		return false
	}
	ctx, cancel := context.WithCancel(ctx)
	l.waiting[r.unique] = cancel
	q, err := parseLock(r.body)
	r.body = nil // which may be long
	work.Go(func() {
		if err == nil {
			err = l.await(ctx, s, r.node, q)
		}
		l.mu.Lock()
		delete(l.waiting, r.unique)
		l.mu.Unlock()
		cancel()
		errno := unix.Errno(0)
		if err != nil {
			errno = number(err)
		}
		s.reply(finish(make([]byte, replyBytes), r.unique, errno))
	})
	return true
}

func (l *locks) await(ctx context.Context, s *Server, id uint64, q lockRequest) error {
	n, err := s.node(id)
	if err != nil {
		return err
	}
	tick := time.NewTicker(lockPoll)
	defer tick.Stop()
	for {
		err := l.set(s, n, q)
		if err == nil && q.kind != unix.F_UNLCK {
			s.notify(n) // what the one before it wrote is to be seen
		}
		if err != unix.EAGAIN && err != unix.EACCES { //nolint:errorlint // x/sys returns numbers as they are
			return err
		}
		select {
		case <-ctx.Done():
			return unix.EINTR
		case <-tick.C:
		}
	}
}

func (l *locks) interrupt(unique uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if cancel := l.waiting[unique]; cancel != nil {
		cancel()
	}
}

// drop gives back the locks of a process on a file.
func (l *locks) drop(o lockOwner) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remove(o)
}

func (l *locks) remove(o lockOwner) {
	if f := l.files[o]; f != nil {
		delete(l.files, o)
		l.ranges -= len(f.ranges)
		_ = f.Close() // nothing is written through it
	}
}

func (l *locks) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for o := range l.files {
		l.remove(o)
	}
}

// flush is what close(2) does in the guest: POSIX takes the process's locks.
func (s *files) flush(r request, out []byte) ([]byte, error) {
	if s.readOnly {
		return nil, unix.ENOSYS // no locks to give back: the kernel doesn't ask again
	}
	a := args{rest: r.body}
	a.skip(16)
	owner := a.u64()
	n, err := s.node(r.node)
	if err == nil {
		err = a.err()
	}
	if err != nil {
		return nil, err
	}
	s.locks.drop(lockOwner{n.id, owner})
	return out, nil
}
