//go:build linux

package hostdir

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// serving counts the servers of each directory.
var serving struct {
	sync.Mutex
	of map[string]int
}

func served(dir string, more int) (left int) {
	serving.Lock()
	defer serving.Unlock()
	if serving.of == nil {
		serving.of = map[string]int{}
	}
	serving.of[dir] += more
	return serving.of[dir]
}

// noneOpen fails if a descriptor of a file below dir is left by its last server.
func noneOpen(t *testing.T, dir string) {
	t.Helper()
	if served(dir, -1) > 0 {
		return
	}
	all, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range all {
		if to, err := os.Readlink(fd); err == nil && (to == dir || strings.HasPrefix(to, dir+"/")) {
			t.Errorf("left open: %s", to)
		}
	}
}

// attrs are what a guest sees of a file.
type attrs struct {
	size           uint64
	atime, mtime   time.Time
	mode, uid, gid uint32
}

func (g *guest) attrs(b []byte, err error) attrs {
	g.t.Helper()
	if err != nil || len(b) != 16+attrBytes {
		g.t.Fatalf("%x, %v", b, err)
	}
	b = b[16:]
	at := func(sec, nsec int) time.Time {
		return time.Unix(int64(order.Uint64(b[sec:])), int64(order.Uint32(b[nsec:])))
	}
	u32 := func(i int) uint32 { return order.Uint32(b[i:]) }
	return attrs{order.Uint64(b[8:]), at(24, 48), at(32, 52), u32(60), u32(68), u32(72)}
}

// TestSetattrSetsWhatItNames sets every combination of attributes of every kind of file.
func TestSetattrSetsWhatItNames(t *testing.T) {
	t.Parallel()
	for kind, names := range map[string][]string{"file": {"f"}, "file without a name": {"gone"}, "link": {"l"}, "directory": {"d"}, "top": nil} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			put(t, dir, map[string]string{"f": "", "gone": "", "d/x": "", "target": ""})
			path := filepath.Join(append([]string{dir}, names...)...)
			if err := os.Symlink("target", filepath.Join(dir, "l")); err != nil {
				t.Fatal(err)
			}
			target, err := os.Stat(filepath.Join(dir, "target"))
			if err != nil {
				t.Fatal(err)
			}
			g := newGuest(t, dir, Options{Writable: true, uid: 7, gid: 8})
			id, fh := g.must(g.walk(names...)), uint64(0)
			file, nameless := strings.HasPrefix(kind, "file"), kind == "file without a name"
			if file {
				fh = g.must(g.open(id, unix.O_RDWR))
			}
			if nameless {
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
			}
			sees := g.attrs(g.ask(opGetattr, id, make([]byte, 16)))
			for valid := range uint32(1 << 9) {
				if valid&setSize != 0 && (!file || nameless && valid&setFH == 0) {
					continue // no kernel asks for it
				}
				has := func(bit uint32) bool { return valid&bit != 0 }
				asked := attrs{uint64(valid), time.Unix(int64(valid), int64(valid)), time.Unix(int64(valid)+1000, 5), 0o700 | valid&0o77, valid, valid + 1}
				body := put64(put32(nil, valid, 0), fh, asked.size, 0, uint64(asked.atime.Unix()), uint64(asked.mtime.Unix()), 0)
				body = put32(body, uint32(asked.atime.Nanosecond()), uint32(asked.mtime.Nanosecond()), 0, asked.mode|unix.S_ISUID, 0, asked.uid, asked.gid, 0)
				got := g.attrs(g.ask(opSetattr, id, body))
				want := sees
				now := func(is bool, t *time.Time, got time.Time) {
					if is && got.Year() > 2000 { // those that are asked for are of 1970
						*t = got
					}
				}
				if has(setSize) {
					want.size = asked.size
				}
				if has(setMode) && kind != "link" {
					want.mode = want.mode&unix.S_IFMT | asked.mode
				}
				if has(setAtime) {
					want.atime = asked.atime
				}
				if has(setMtime) {
					want.mtime = asked.mtime
				}
				if has(setAtimeNow) {
					want.atime = time.Time{}
				}
				if has(setMtimeNow) || has(setSize) && !has(setMtime) {
					want.mtime = time.Time{}
				}
				now(want.atime.IsZero(), &want.atime, got.atime)
				now(want.mtime.IsZero(), &want.mtime, got.mtime)
				if has(setUID) {
					want.uid = asked.uid
				}
				if has(setGID) {
					want.gid = asked.gid
				}
				if got != want {
					t.Fatalf("set %#x: got %v, want %v", valid, got, want)
				}
				if again := g.attrs(g.ask(opGetattr, id, append(put32(nil, valid&getattrFH, 0), put64(nil, fh)...))); again != got {
					t.Fatalf("set %#x: %v in the reply, %v after it", valid, got, again)
				}
				sees = got
			}
			if info, err := os.Lstat(path); !nameless && (err != nil || info.Size() != int64(sees.size) && file || !info.ModTime().Equal(sees.mtime)) {
				t.Errorf("the host has %v, %v; the guest %v", info, err, sees)
			}
			if info, err := os.Stat(filepath.Join(dir, "target")); err != nil || info.Mode() != target.Mode() || !info.ModTime().Equal(target.ModTime()) {
				t.Errorf("the link was followed: %v, %v", info, err)
			}
		})
	}
}

// listing is all that is below dir.
func listing(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil {
			_, err = fmt.Fprintln(&b, path, info.Mode(), info.Size()*int64(1-info.Mode()>>31), info.ModTime().UnixNano())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestI12_TruncatedRequestsDoNothing sends every request without its last bytes, then about files that are not
// known or not open, and then as it should be.
func TestI12_TruncatedRequestsDoNothing(t *testing.T) {
	t.Parallel()
	const known, fh = 1001, 1002 // stand for numbers that the server gives
	n64, n32 := func(v ...uint64) []byte { return put64(nil, v...) }, func(v ...uint32) []byte { return put32(nil, v...) }
	cat := func(parts ...[]byte) (b []byte) {
		for _, p := range parts {
			b = append(b, p...)
		}
		return b
	}
	lock := cat(n64(fh, 9, 0, 5), n32(unix.F_WRLCK, 0, 0))
	for what, tt := range map[string]struct {
		op   opcode
		node string // the file that it is about, open as fh
		body []byte
	}{
		"init":        {opInit, "", n32(7, 41, 4096, 0)},
		"lookup":      {opLookup, "", name("f")},
		"getattr":     {opGetattr, "f", make([]byte, 16)},
		"setattr":     {opSetattr, "f", cat(n32(setMode|setUID|setGID|setSize, 0), make([]byte, 60), n32(0o600, 0, 1, 2))},
		"symlink":     {opSymlink, "", name("new", "f")},
		"mknod":       {opMknod, "", cat(n32(unix.S_IFREG|0o600, 0, 0, 0), name("new"))},
		"mkdir":       {opMkdir, "", cat(n32(0o700, 0), name("new"))},
		"unlink":      {opUnlink, "", name("f")},
		"rmdir":       {opRmdir, "", name("empty")},
		"rename":      {opRename, "", cat(n64(rootID), name("f", "new"))},
		"rename2":     {opRename2, "", cat(n64(rootID), n32(unix.RENAME_NOREPLACE, 0), name("f", "new"))},
		"link":        {opLink, "", cat(n64(known), name("new"))},
		"open":        {opOpen, "f", n32(unix.O_RDWR)},
		"read":        {opRead, "f", cat(n64(fh, 0), n32(5))},
		"write":       {opWrite, "f", cat(n64(fh, 0), n32(5), make([]byte, 20), []byte("hello"))},
		"release":     {opRelease, "f", n64(fh)},
		"fsync":       {opFsync, "f", cat(n64(fh), n32(0))},
		"fdatasync":   {opFsync, "f", cat(n64(fh), n32(fsyncDatasync))},
		"fsyncdir":    {opFsyncdir, "d", cat(n64(fh), n32(0))},
		"flush":       {opFlush, "f", n64(0, 0, 9)},
		"readdir":     {opReaddir, "d", cat(n64(fh, 0), n32(4096))},
		"readdirplus": {opReaddirplus, "d", cat(n64(fh, 0), n32(4096))},
		"releasedir":  {opReleasedir, "d", n64(fh)},
		"getlk":       {opGetlk, "f", lock},
		"setlk":       {opSetlk, "f", lock},
		"create":      {opCreate, "", cat(n32(unix.O_RDWR, 0o600, 0, 0), name("new"))},
		"fallocate":   {opFallocate, "f", cat(n64(fh, 0, 10), n32(0))},
		"lseek":       {opLseek, "f", cat(n64(fh, 0), n32(unix.SEEK_HOLE))},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			put(t, dir, map[string]string{"f": "text", "other": "", "d/x": ""})
			if err := os.Mkdir(filepath.Join(dir, "empty"), 0o700); err != nil {
				t.Fatal(err)
			}
			g := newGuest(t, dir, Options{Writable: true})
			id, open := uint64(rootID), uint64(4711)
			f, otherID := g.must(g.walk("f")), g.must(g.walk("other"))
			otherHandle := g.must(g.open(otherID, unix.O_RDWR))
			switch tt.node {
			case "f":
				id, open = f, g.must(g.open(f, unix.O_RDWR))
			case "d":
				id = g.must(g.walk("d"))
				b, err := g.ask(opOpendir, id, nil)
				if err != nil {
					t.Fatal(err)
				}
				open = order.Uint64(b)
			}
			filled := func(v uint64) []byte {
				body := append([]byte(nil), tt.body...)
				if len(body) >= 8 {
					switch order.Uint64(body) {
					case known:
						order.PutUint64(body, f)
					case fh:
						order.PutUint64(body, v)
					}
				}
				return body
			}
			before, nodes, handles := listing(t, dir), len(g.s.nodes), len(g.s.handles)
			refused := func(how string, id uint64, body []byte, errs ...error) {
				t.Helper()
				_, err := g.ask(tt.op, id, body)
				if len(errs) > 0 {
					want(t, how, err, errs[0])
				} else if err == nil {
					t.Errorf("%s: no error", how)
				}
				if now := listing(t, dir); now != before || len(g.s.nodes) != nodes || len(g.s.handles) != handles {
					t.Fatalf("%s: %s\nthat was\n%s; %d nodes, %d handles, before %d, %d", how, now, before, len(g.s.nodes), len(g.s.handles), nodes, handles)
				}
			}
			for n := range tt.body {
				refused(fmt.Sprintf("%d of %d bytes", n, len(tt.body)), id, filled(open)[:n])
			}
			if len(tt.body) >= 8 && order.Uint64(tt.body) == fh {
				refused("no handle", id, filled(4711), unix.EBADF)
				refused("handle of another", id, filled(otherHandle), unix.EBADF)
				g.s.handles[4712] = &handle{id: 4712, node: g.s.nodes[id], done: true}
				handles++
				if tt.op != opRelease && tt.op != opReleasedir {
					refused("handle that is closed", id, filled(4712), unix.EBADF)
				}
				delete(g.s.handles, 4712)
				handles--
			}
			if tt.op != opInit && tt.op != opRelease && tt.op != opReleasedir {
				refused("no node", 4711, filled(open), unix.ESTALE)
			}
			if _, err := g.ask(tt.op, id, filled(open)); err != nil {
				t.Errorf("whole: %v", err)
			}
		})
	}
}

// TestInvalidRequestsGetKernelErrors: each is refused with the number that the
// kernel itself would give.
func TestInvalidRequestsGetKernelErrors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir, map[string]string{"f": "text", "d/x": ""})
	g := newGuest(t, dir, Options{Writable: true})
	f, d := g.must(g.walk("f")), g.must(g.walk("d"))
	fh := g.must(g.open(f, unix.O_RDWR))
	b, err := g.ask(opOpendir, d, nil)
	if err != nil {
		t.Fatal(err)
	}
	dh := order.Uint64(b)
	at := func(fh, offset uint64, v uint32) []byte { return put32(put64(nil, fh, offset), v) }
	lock := func(start, end uint64, kind uint32) []byte {
		return put32(put64(nil, fh, 9, start, end), kind, 0, 0)
	}
	for what, tt := range map[string]struct {
		op   opcode
		node uint64
		body []byte
		want error
	}{
		"init of an older kernel":       {opInit, 0, put32(nil, 7, abiMinMinor-1, 0, 0), unix.EPROTO},
		"init of the oldest":            {opInit, 0, put32(nil, 7, abiMinMinor, 0, 0), nil},
		"init of another protocol":      {opInit, 0, put32(nil, 8, 41, 0, 0), unix.EPROTO},
		"kind that is none":             {4711, f, nil, unix.ENOSYS},
		"open of a directory":           {opOpen, d, put32(nil, 0), unix.EISDIR},
		"opendir of a file":             {opOpendir, f, nil, unix.ENOTDIR},
		"read of a directory":           {opRead, d, at(dh, 0, 10), unix.EISDIR},
		"readdir of a file":             {opReaddir, f, at(fh, 0, 4096), unix.EBADF},
		"readlink of a file":            {opReadlink, f, nil, unix.EINVAL},
		"write of fewer bytes":          {opWrite, f, append(at(fh, 0, 5), make([]byte, 24)...), unix.EINVAL},
		"write of more bytes":           {opWrite, f, append(at(fh, 0, 5), make([]byte, 26)...), unix.EINVAL},
		"write before the start":        {opWrite, f, append(at(fh, 1<<63, 5), make([]byte, 25)...), unix.EINVAL},
		"seek from the start":           {opLseek, f, at(fh, 0, unix.SEEK_SET), unix.EINVAL},
		"seek from the end":             {opLseek, f, at(fh, 0, unix.SEEK_END), unix.EINVAL},
		"seek of data behind the end":   {opLseek, f, at(fh, 4, unix.SEEK_DATA), unix.ENXIO},
		"seek in a directory":           {opLseek, d, at(dh, 0, unix.SEEK_DATA), unix.EINVAL},
		"lock that ends before":         {opSetlk, f, lock(5, 4, unix.F_WRLCK), unix.EINVAL},
		"lock of one byte":              {opSetlk, f, lock(5, 5, unix.F_WRLCK), nil},
		"lock behind the last byte":     {opSetlk, f, lock(0, 1<<63, unix.F_WRLCK), unix.EINVAL},
		"lock of no kind":               {opSetlk, f, lock(0, 5, unix.F_UNLCK+1), unix.EINVAL},
		"lock given back":               {opSetlk, f, lock(0, 1<<63-1, unix.F_UNLCK), nil},
		"lock that waits, unserved":     {opSetlkw, f, lock(0, 5, unix.F_WRLCK), unix.ENOLCK},
		"rename that leaves a whiteout": {opRename2, rootID, append(put32(put64(nil, rootID), unix.RENAME_WHITEOUT, 0), name("f", "g")...), unix.EINVAL},
		"fallocate of nothing":          {opFallocate, f, put32(put64(nil, fh, 0, 0), 0), unix.EINVAL},
		"mknod of a FIFO":               {opMknod, rootID, append(put32(nil, unix.S_IFIFO|0o600, 0, 0, 0), name("p")...), unix.EPERM},
		"mknod of what is there":        {opMknod, rootID, append(put32(nil, 0o600, 0, 0, 0), name("f")...), unix.EEXIST},
		"link to the top":               {opLink, rootID, append(put64(nil, rootID), name("top")...), unix.EBUSY},
		"rmdir of a full directory":     {opRmdir, rootID, name("d"), unix.ENOTEMPTY},
		"unlink of a directory":         {opUnlink, rootID, name("d"), unix.EISDIR},
	} {
		_, err := g.ask(tt.op, tt.node, tt.body)
		want(t, what, err, tt.want)
	}
	ro := newGuest(t, dir, Options{})
	for op, want := range map[opcode]error{opSetlkw: unix.ENOSYS, opSetlk: unix.ENOSYS, opFlush: unix.ENOSYS, opWrite: unix.EROFS, 4711: unix.ENOSYS} {
		if _, err := ro.ask(op, rootID, make([]byte, 64)); err != want { //nolint:errorlint // the guest's kernel gets a number
			t.Errorf("read-only, kind %d: %v, want %v", op, err, want)
		}
	}
}

// TestRepliesMatchTheHost compares replies with what the host's kernel says of the same files.
func TestRepliesMatchTheHost(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	put(t, dir, map[string]string{"f": "text", "two": "text"})
	own, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = own.Close() }()
	if _, err := own.WriteAt([]byte("far"), 1<<20); err != nil {
		t.Fatal(err)
	}
	g := newGuest(t, dir, Options{Writable: true})
	f := g.must(g.walk("f"))
	fh := g.must(g.open(f, unix.O_RDWR))
	for _, whence := range []int{unix.SEEK_DATA, unix.SEEK_HOLE} {
		for _, offset := range []int64{0, 100, 1 << 19, 1 << 20} {
			wanted, err := unix.Seek(int(own.Fd()), offset, whence)
			if err != nil {
				t.Fatal(err)
			}
			if b, err := g.ask(opLseek, f, put32(put64(nil, fh, uint64(offset)), uint32(whence))); err != nil || order.Uint64(b) != uint64(wanted) {
				t.Errorf("seek %d from %d: %x, %v; want %d", whence, offset, b, err, wanted)
			}
		}
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	b, err := g.ask(opStatfs, rootID, nil)
	if err != nil || len(b) != 80 || order.Uint64(b) != st.Blocks || order.Uint64(b[24:]) != st.Files || order.Uint32(b[40:]) != uint32(st.Bsize) || order.Uint32(b[44:]) != uint32(st.Namelen) || order.Uint32(b[48:]) != uint32(st.Frsize) {
		t.Errorf("statfs %x, %v; want %+v", b, err, st)
	}
	// What the guest changes itself, it is not sent to look at again (outdated).
	size := func(wanted int64) {
		t.Helper()
		if info, err := own.Stat(); err != nil || info.Size() != wanted {
			t.Errorf("size %d, %v; want %d", info.Size(), err, wanted)
		}
		fh, err := g.open(f, unix.O_RDONLY)
		if err != nil {
			t.Fatalf("open: %v", err)
		}
		if err := g.close(f, fh); err != nil {
			t.Error(err)
		}
	}
	allocate := func(offset, length uint64, mode uint32) {
		t.Helper()
		if _, err := g.ask(opFallocate, f, put32(put64(nil, fh, offset, length), mode)); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.write(f, fh, 1<<20, "farther"); err != nil {
		t.Fatal(err)
	}
	size(1<<20 + 7)
	allocate(1<<20, 50, unix.FALLOC_FL_KEEP_SIZE)
	size(1<<20 + 7)
	allocate(1<<20, 100, 0)
	size(1<<20 + 100)
	allocate(0, 2, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE)
	size(1<<20 + 100)
	if text, err := g.read(f, fh, 4); text != "\x00\x00xt" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	// MKNOD makes a file and opens none.
	b, err = g.ask(opMknod, rootID, append(put32(nil, 0o640, 0, 0, 0), name("new")...))
	if err != nil || len(b) != entryBytes || len(g.s.handles) != 1 {
		t.Errorf("mknod: %d bytes, %v, %d open", len(b), err, len(g.s.handles))
	}
	// A file that another takes the place of is another node, whatever the name.
	two := g.must(g.walk("two"))
	if err := g.rename(rootID, "new", rootID, "two", 0); err != nil {
		t.Fatal(err)
	}
	if n := g.must(g.walk("two")); n == two || n != order.Uint64(b) {
		t.Errorf("node %d, the moved one %d, the replaced one %d", n, order.Uint64(b), two)
	}
	_, err = g.ask(opGetattr, two, make([]byte, 16))
	want(t, "the replaced file", err, unix.ESTALE)
	_, err = g.ask(opLink, rootID, append(put64(nil, two), name("again")...))
	want(t, "link to the replaced file", err, unix.ESTALE)
	_, err = g.open(two, 0)
	want(t, "open of the replaced file", err, unix.ESTALE)
}

// TestRangeLocksMatchTheHost looks at the guest's locks of ranges from another of its processes and from the host.
func TestRangeLocksMatchTheHost(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir, map[string]string{"f": ""})
	host, err := os.OpenFile(filepath.Join(dir, "f"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = host.Close() }()
	g := newGuest(t, dir, Options{Writable: true})
	heard := 0
	g.s.conn = listener(func(b []byte) {
		if order.Uint32(b[4:]) == notifyInvalNode {
			heard++
		}
	})
	f := g.must(g.walk("f"))
	fh := g.must(g.open(f, unix.O_RDWR))
	lock := func(op opcode, owner, start, end uint64, kind uint32) ([]byte, error) {
		return g.ask(op, f, put32(put64(nil, fh, owner, start, end), kind, 0, 0))
	}
	for _, last := range []uint64{19, 1<<63 - 1} {
		if _, err := lock(opSetlk, 9, 10, last, unix.F_WRLCK); err != nil {
			t.Fatal(err)
		}
		for _, tt := range []struct {
			owner, start, end uint64
			free              bool
		}{{10, 0, 9, true}, {10, 0, 10, false}, {10, 19, 30, false}, {10, 20, 30, last == 19}, {9, 10, 19, true}} {
			kind := uint32(unix.F_WRLCK)
			wanted := put32(put64(nil, 10, last), kind, 0)
			if tt.free {
				wanted = put32(put64(nil, tt.start, tt.end), unix.F_UNLCK, 0)
			}
			if b, err := lock(opGetlk, tt.owner, tt.start, tt.end, kind); err != nil || string(b) != string(wanted) {
				t.Errorf("getlk %+v: %x, %v; want %x", tt, b, err, wanted)
			}
		}
		is := unix.Flock_t{Type: unix.F_RDLCK}
		if err := unix.FcntlFlock(host.Fd(), unix.F_OFD_GETLK, &is); err != nil || is.Type != unix.F_WRLCK || is.Start != 10 || is.Len != map[uint64]int64{19: 10}[last] {
			t.Errorf("the host sees %+v, %v", is, err)
		}
	}
	if heard != 2 {
		t.Errorf("%d notices that the content may be another, want 2", heard)
	}
	if _, err := lock(opSetlk, 9, 0, 1<<63-1, unix.F_UNLCK); err != nil || heard != 2 {
		t.Errorf("unlock: %v, %d notices", err, heard)
	}
	// I11: each owner takes a descriptor, and gives it back.
	for owner := range uint64(maxLockFiles + 1) {
		_, err := lock(opSetlk, 100+owner, owner, owner, unix.F_RDLCK)
		wanted := error(nil)
		if owner >= maxLockFiles-1 { // one is the first owner's
			wanted = unix.ENOLCK
		}
		want(t, fmt.Sprint("owner ", owner), err, wanted)
	}
	if _, err := g.ask(opFlush, f, put64(nil, fh, 0, 100)); err != nil {
		t.Error(err)
	}
	_, err = lock(opSetlk, 5, 0, 0, unix.F_WRLCK)
	want(t, "after one was given back", err, nil)
}

// listener is a connection of which a test hears what is sent.
type listener func([]byte)

func (listener) Recv() ([]byte, error) { return nil, unix.EPIPE }
func (l listener) Send(b []byte) error { l(b); return nil }

// TestI11_WaitersForLocksAreBounded has more requests wait than may.
func TestI11_WaitersForLocksAreBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir, map[string]string{"f": ""})
	host, err := os.OpenFile(filepath.Join(dir, "f"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = host.Close() }()
	if err := unix.Flock(int(host.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	_, p := newSession(t, dir, Options{Writable: true})
	p.ask(opInit, 2, 0, greeting())
	f := order.Uint64(p.ask(opLookup, 3, rootID, name("f")))
	fh := order.Uint64(p.ask(opOpen, 4, f, put32(nil, unix.O_RDWR, 0)))
	refused := func(unique uint64) {
		t.Helper()
		p.send(opSetlkw, unique, f, lockBody(fh, 9, unix.F_WRLCK, lkFlock))
		if n, errno, _ := p.reply(); n != unique || errno != -int32(unix.ENOLCK) {
			t.Errorf("reply %d, %d to %d", n, errno, unique)
		}
	}
	for i := range uint64(maxWaiters) {
		p.send(opSetlkw, 1000+i, f, lockBody(fh, 9, unix.F_WRLCK, lkFlock))
		if i == 0 {
			refused(1000) // a number that waits already
		}
	}
	refused(5000)
	close(p.requests)
	<-p.ended // all that wait are let go
	for range maxWaiters {
		if _, errno, _ := p.reply(); errno != -int32(unix.EINTR) {
			t.Errorf("a waiter was answered %d", errno)
		}
	}
}

// TestCyclicAndOverlongPathsAreRefused, which the host can make by moving
// directories.
func TestCyclicAndOverlongPathsAreRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir, map[string]string{"a/b/f": ""})
	g := newGuest(t, dir, Options{Writable: true})
	now := time.Now()
	g.s.now = func() time.Time { return now }
	a, b := g.must(g.walk("a")), g.must(g.walk("a", "b"))
	g.must(g.walk("a", "b", "f"))
	for _, mv := range [][2]string{{"a/b", "b"}, {"a", "b/a"}} {
		if err := os.Rename(filepath.Join(dir, mv[0]), filepath.Join(dir, mv[1])); err != nil {
			t.Fatal(err)
		}
	}
	_, err := g.ask(opLookup, b, name("a")) // b is still thought to lie in a
	want(t, "circle", err, unix.ESTALE)
	if got := g.must(g.walk("b", "a")); got != a {
		t.Errorf("node %d, want %d", got, a)
	}
	long, at := strings.Repeat("n", 255), uint64(rootID)
	for range maxPathBytes/256 + 1 {
		if at, err = g.mkdir(at, long); err != nil {
			t.Fatal(err)
		}
	}
	_, err = g.mkdir(at, "n")
	want(t, "a path of more than 4096 bytes", err, unix.ENAMETOOLONG)
}

// TestExtensionsOfRequestsAreSkipped has what newer kernels put behind a request's body.
func TestExtensionsOfRequestsAreSkipped(t *testing.T) {
	t.Parallel()
	for units, ok := range map[int]bool{0: true, 1: true, 2: true, 3: false, 1 << 15: false} {
		b := message(opLookup, rootID, append(name("1234567"), make([]byte, 8)...))
		order.PutUint16(b[36:], uint16(units))
		r, got := parseRequest(b)
		if got != ok || ok && len(r.body) != 16-8*units {
			t.Errorf("%d words of 8 bytes in a body of 16: %t, %d bytes are left", units, got, len(r.body))
		}
	}
}
