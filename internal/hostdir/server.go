//go:build linux

package hostdir

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxIO is the most that one request reads or writes, in bytes.
	maxIO = 256 << 10

	// maxMessage bounds a message in bytes: a write with its head, rounded up.
	maxMessage = maxIO + 4<<10

	// maxInflight is how many requests are worked on at once. Each takes up to
	// MaxMessage bytes twice, and a thread while it waits for the disk.
	maxInflight = 16

	// maxNodes is how many files the guest's kernel may know at once: some 300
	// bytes each. A guest that asks for more gets ENFILE.
	maxNodes = 1 << 19

	// maxHandles is how many files the guest may have open: a descriptor each, if
	// the process may have as many (limitsOf).
	maxHandles = 4096
)

// Conn carries whole messages of the FUSE protocol, requests in, replies out.
// Recv and Send may run at the same time.
type Conn interface {
	Recv() ([]byte, error)
	Send(reply []byte) error
}

// errProtocol means that the guest sent what its kernel never sends.
var errProtocol = errors.New("the guest sent no request of the FUSE protocol")

// Options say how a directory is served.
type Options struct {
	// PollName is a file at the top that is there until it was polled once; "" for none.
	PollName string
	// Writable lets the guest change it.
	Writable bool
	// uid and gid are whom the guest sees as the owner of everything.
	uid, gid uint32
	// File serves one regular file, which is all of the guest's file system, and nothing of the directory that it lies in.
	// There is no PollName.
	File bool
	// HostOwners shows the guest each file's own user, group, setuid and setgid bits, and gives files that the guest
	// makes or gives away to the users that it says, which takes the rights of root here. Without it all is the
	// guest's user's, and a change of owner by the guest is only remembered.
	HostOwners bool
	// Hide has patterns of names (path.Match) that the guest doesn't see and can't
	// make. One with a slash is of paths from the top.
	Hide []string
	// ByName is for a guest that mounts an overlay over the directory: a name stays the same file for it, whatever the host
	// puts in its place, since an overlay keeps the files that it has looked up.
	ByName bool
	// Base hears of each file, but of no directory, that the guest looks up or opens. The guest lists names alone then: an
	// overlay lists what lies below its own files too, and would be taken to know it.
	Base func(path string, f File, opened bool)
	// Share is how many directories are served beside each other, which the limits
	// are divided by; 0 is 1.
	Share int
	// Pool takes the place of Share; nil for none.
	Pool *Pool
}

// File is what the guest was shown of a file: enough to tell whether the host has changed it since.
type File struct {
	// Mode is Linux's st_mode.
	Mode        uint32
	Inode, Size uint64
	// Modified and Changed are st_mtim and st_ctim, in nanoseconds.
	Modified, Changed int64
}

// Server serves one directory.
type Server struct {
	files
	ready bool // INIT was answered; used by Serve's own goroutine

	pollName string
	polled   chan struct{}
	pollOnce sync.Once

	send sync.Mutex
	conn Conn
}

// files are what the guest has open.
type files struct {
	tree
	maxHandles int
	handles    map[uint64]*handle
	lastHandle uint64
	locks      locks
}

// tree is what the guest's kernel knows of the directory.
type tree struct {
	root     *os.Root
	top      *unix.Statx_t
	first    *node // the top's
	readOnly bool
	owner    owner
	real     bool // owners are the host's
	hide     Hiding
	// shortNames tells that files may have second names, which no pattern has.
	shortNames bool
	byName     bool
	base       func(path string, f File, opened bool) // may be nil
	pool       *Pool                                  // may be nil
	maxNodes   int
	maxDirs    int

	// What tests replace.
	open     func(path string) (*os.File, error) // a directory below the top; "" is the top
	identify bool                                // a directory must be the one that was looked up
	now      func() time.Time

	mu     sync.Mutex // of files too
	closed bool
	nodes  map[uint64]*node
	known  map[identity]*node
	named  map[place]*node // with byName, in the place of known
	dirs   map[*node]*dir
	owners map[identity]owner
	count  int
	lastID uint64
	uses   uint64
}

type owner struct{ uid, gid uint32 }

// New opens the directory at path, or with Options.File the regular file. The path is absolute and has no links in it.
func New(path string, o Options) (*Server, error) {
	for _, p := range o.Hide {
		if err := CheckHide(p); err != nil {
			return nil, err
		}
	}
	name := ""
	if o.File {
		path, name = filepath.Split(path)
		o.PollName = ""
	}
	root, err := OpenRoot(path)
	if err != nil {
		return nil, err
	}
	limits := limitsOf(descriptorLimit(), max(o.Share, 1))
	if o.Pool != nil {
		limits = o.Pool.most
	}
	s := &Server{pollName: o.PollName, polled: make(chan struct{}), files: files{
		maxHandles: limits.handles, handles: map[uint64]*handle{}, locks: locks{maxFiles: limits.locks, maxRanges: maxRanges}, tree: tree{
			root: root, readOnly: !o.Writable, owner: owner{o.uid, o.gid}, real: o.HostOwners, hide: NewHiding(o.Hide), byName: o.ByName, base: o.Base, pool: o.Pool, maxNodes: limits.nodes, maxDirs: limits.dirs, identify: true, now: time.Now,
			nodes: map[uint64]*node{}, known: map[identity]*node{}, named: map[place]*node{}, dirs: map[*node]*dir{}, owners: map[identity]owner{}, count: 1, lastID: rootID,
		},
	}}
	s.open = func(path string) (*os.File, error) {
		return s.root.OpenFile(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	}
	if o.ByName {
		s.open = s.walk
	}
	if err := s.openTop(name); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), root.Close())
	}
	return s, nil
}

// openTop makes the first node, whose directory stays open. With a name the guest's first node is that file: it knows none
// of the directory.
func (s *Server) openTop(name string) error {
	f, err := s.root.Open(".")
	if err != nil {
		return err
	}
	d := &dir{file: f}
	d.users.Store(1)
	var kind unix.Statfs_t
	if s.top, err = s.stat(d.fd(), ""); err == nil {
		err = retry(func() error { return unix.Fstatfs(d.fd(), &kind) })
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	s.shortNames = hasShortNames(uint32(kind.Type))
	n := &node{id: rootID, is: identityOf(s.top)}
	s.first, s.dirs[n] = n, d
	if name != "" {
		info, err := s.stat(d.fd(), name)
		if err == nil && info.Mode&unix.S_IFMT != unix.S_IFREG {
			err = unix.EINVAL
		}
		if err != nil {
			return errors.Join(err, f.Close())
		}
		n.id = noID
		n = &node{id: rootID, is: identityOf(info), parent: n, name: name}
	}
	s.nodes[rootID], s.known[n.is] = n, n
	return nil
}

// SetOwner sets whom the guest sees as the owner of everything, before Serve.
func (s *Server) SetOwner(uid, gid uint32) { s.owner = owner{uid, gid} }

// Close lets go of everything. It comes after Serve.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	handles := s.handles
	s.handles = map[uint64]*handle{}
	s.pool.give(poolHandles, len(handles))
	s.pool.give(poolNodes, s.count-1) // but the top
	s.count = 1
	for n := range s.dirs {
		s.retire(n)
	}
	s.mu.Unlock()
	for _, h := range handles {
		_ = h.close() // the guest that could be told is gone
	}
	s.locks.close()
	return s.root.Close()
}

// Serve answers requests until conn ends, whose error it returns, or breaks the
// protocol. A server serves one connection.
func (s *Server) Serve(ctx context.Context, conn Conn) error {
	s.conn = conn
	ctx, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	slots := make(chan struct{}, maxInflight)
	for {
		b, err := conn.Recv()
		if err != nil {
			return err
		}
		r, ok := parseRequest(b)
		if !ok || len(b) > maxMessage || !s.ready && r.op != opInit {
			return fmt.Errorf("%w: %d bytes", errProtocol, len(b))
		}
		switch r.op {
		case opForget, opBatchForget, opInterrupt, opDestroy:
			s.tell(r)
			continue
		case opInit:
			if s.ready {
				return fmt.Errorf("%w: a second greeting", errProtocol)
			}
			s.ready = true
		case opRelease:
			s.locks.released(s, r)
		case opSetlkw:
			if s.locks.wait(ctx, s, r, &work) {
				continue
			}
		default:
		}
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
		work.Go(func() {
			defer func() { <-slots }()
			s.reply(s.answer(r))
		})
	}
}

// reply sends one reply. It reports no error: Recv returns the one that ends
// the connection.
func (s *Server) reply(b []byte) {
	s.send.Lock()
	defer s.send.Unlock()
	_ = s.conn.Send(b)
}

// notify makes the guest's kernel ask for the attributes of n again, and read
// again what it has cached if they changed. Pages are not named: the kernel
// would wait for reads that are answered after this.
func (s *Server) notify(n *node) {
	b := put64(make([]byte, replyBytes, replyBytes+24), n.id, ^uint64(0), 0)
	order.PutUint32(b, uint32(len(b)))
	order.PutUint32(b[4:], notifyInvalNode) // with unique 0 this is no error
	s.reply(b)
}

// tell takes a message that has no reply.
func (s *Server) tell(r request) {
	a := args{rest: r.body}
	switch r.op {
	case opForget:
		s.forget(r.node, a.u64())
	case opBatchForget:
		count := a.u32()
		a.skip(4)
		for ; count > 0 && !a.bad; count-- {
			id, lookups := a.u64(), a.u64()
			s.forget(id, lookups)
		}
	case opInterrupt:
		s.locks.interrupt(a.u64())
	default: // DESTROY: the connection ends
	}
}

// answer works on one request and returns the reply.
func (s *Server) answer(r request) []byte {
	out, err := s.do(r, make([]byte, replyBytes, 256))
	if err != nil {
		return finish(make([]byte, replyBytes), r.unique, number(err))
	}
	return finish(out, r.unique, 0)
}

func (s *Server) do(r request, out []byte) ([]byte, error) {
	if r.node == pollID {
		return s.poll(r, out)
	}
	switch r.op {
	case opInit:
		return s.greet(r, out)
	case opLookup:
		return s.lookup(r, out)
	case opGetattr:
		return s.getattr(r, out)
	case opReadlink:
		return s.readlink(r, out)
	case opOpen:
		return s.openFile(r, out)
	case opRead:
		return s.read(r, out)
	case opLseek:
		return s.lseek(r, out)
	case opFlush:
		return s.flush(r, out)
	case opRelease, opReleasedir:
		return s.release(r, out)
	case opOpendir:
		return s.opendir(r, out)
	case opReaddir, opReaddirplus:
		return s.readdir(r, out, r.op == opReaddirplus)
	case opStatfs:
		return s.statfs(out)
	case opFsync, opFsyncdir:
		return s.fsync(r, out)
	default:
		if s.readOnly {
			return nil, readOnlyError(r.op)
		}
		return s.change(r, out)
	}
}

// greet answers INIT.
func (s *Server) greet(r request, out []byte) ([]byte, error) {
	a := args{rest: r.body}
	major, minor, readahead, flags := a.u32(), a.u32(), a.u32(), a.u32()
	if err := a.err(); err != nil {
		return nil, err
	}
	if major != abiMajor || minor < abiMinMinor {
		return nil, unix.EPROTO
	}
	want := uint32(initAsyncRead | initBigWrites | initAutoInvalData | initReaddirplus | initReaddirplusAuto | initParallelDirops | initMaxPages)
	if s.base != nil {
		want &^= initReaddirplus | initReaddirplusAuto
	}
	if !s.byName { // a node is one link then, and that always leads to the same
		want |= initCacheSymlinks
	}
	if !s.readOnly {
		want |= initPosixLocks | initFlockLocks
	}
	out = put32(out, abiMajor, min(minor, abiMinor), min(readahead, maxIO), flags&want)
	out = order.AppendUint16(order.AppendUint16(out, maxInflight), maxInflight*3/4)
	out = put32(out, maxIO, 1) // the largest write, times in nanoseconds
	out = order.AppendUint16(out, maxIO>>12)
	return append(out, make([]byte, 64-(len(out)-replyBytes))...), nil
}
