package sandbox

import (
	"cmp"
	"encoding/binary"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/sandbox/internal/state"
)

const (
	// indexFrom is the number of sandboxes from which an index is kept: reading fewer takes no longer without it.
	indexFrom = 256
	// indexSettled is how long a directory must be unchanged before its entry is kept: two changes in one tick of the file
	// system's clock have the same time.
	indexSettled = 2 * time.Second
	// indexAgain is how many sandboxes may have to be read before the index is written again.
	indexAgain = 64
	// indexMagic begins an index, behind the checksum of all that follows. It changes with the form of the entries.
	indexMagic = "msb index 3\n"
)

// stamp changes when anything is made, renamed or removed in a directory. Times are in nanoseconds since 1970.
type stamp struct {
	Device, Inode     uint64
	Modified, Changed int64
}

// stampOf is zero for what is no directory.
func stampOf(parent int, path string) (s stamp) {
	var st unix.Stat_t
	if unix.Fstatat(parent, path, &st, unix.AT_SYMLINK_NOFOLLOW) != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return s
	}
	return stampFrom(&st)
}

// settled reports whether the directory was unchanged for long enough at that time.
func (s stamp) settled(at time.Time, wait time.Duration) bool {
	return at.Sub(time.Unix(0, s.Modified)) > wait && at.Sub(time.Unix(0, s.Changed)) > wait
}

// lister reads sandboxes with the help of the index. That holds what was read about stopped sandboxes, so that a list need
// not open ten thousand files: an entry for each, in the order of their names. It is a cache: it may be removed, and an
// unreadable one is ignored. Every change of a stopped sandbox renames a file in its directory, or in that of its jobs.
type lister struct {
	home    *Home
	dir     string
	parent  *os.File // nil where there is no index
	at      []stamp  // of the sandboxes' directories
	entries []string // of the sandboxes for the next index, "" for none
	read    int      // sandboxes that the index didn't have
}

func newLister(h *Home, names []string) *lister {
	l := &lister{home: h, dir: filepath.Join(h.dir, state.NamedDir), at: make([]stamp, len(names))}
	if len(names) < indexFrom || !h.made.IsZero() {
		return l
	}
	if parent, err := os.Open(l.dir); err == nil {
		l.parent, l.entries = parent, make([]string, len(names))
	}
	return l
}

// recall fills in what the index holds of the sandboxes names[i], and leaves the others zero. Most of the time of a long
// list goes here, so all processors work on it.
func (l *lister) recall(names []string, all []Status) {
	if l.parent == nil {
		return
	}
	kept, parent, each := l.readKept(), int(l.parent.Fd()), len(names)/runtime.GOMAXPROCS(0)+1
	var work sync.WaitGroup
	for begin := 0; begin < len(names); begin += each {
		work.Go(func() {
			entries := entryCoder{reading: true, in: kept}
			var entry, name string
			for i := begin; i < min(begin+each, len(names)); i++ {
				l.at[i] = stampOf(parent, names[i])
				for name < names[i] && entries.in != "" && !entries.bad {
					entries.text(&entry)
					(&entryCoder{reading: true, in: entry}).text(&name)
				}
				if name == names[i] {
					l.take(i, entry, &all[i])
				}
			}
		})
	}
	work.Wait()
}

// take fills in a sandbox if nothing has changed since its entry was made.
func (l *lister) take(i int, entry string, st *Status) {
	c := entryCoder{reading: true, in: entry}
	var name string
	var at, jobs stamp
	c.text(&name)
	c.stamp(&at)
	c.stamp(&jobs)
	if c.bad || at == (stamp{}) || at != l.at[i] || jobs != (stamp{}) && jobs != stampOf(int(l.parent.Fd()), name+"/"+state.JobsDir) {
		return
	}
	*st = Status{} // written before it is read, or the kernel maps each page twice
	if c.status(st); c.bad {
		*st = Status{}
		return
	}
	l.entries[i] = entry
}

// inspect is Inspect's result for the sandbox names[i].
func (l *lister) inspect(i int, name string) (*Status, error) {
	if l.parent == nil {
		return l.home.Inspect(name)
	}
	before, at, jobs := time.Now(), l.at[i], stampOf(int(l.parent.Fd()), name+"/"+state.JobsDir)
	st, err := l.home.Inspect(name)
	if err != nil {
		return nil, err
	}
	l.read++
	wait := cmp.Or(l.home.settled, indexSettled)
	if !st.Running && !l.socketLeft(name) && at.settled(before, wait) && (jobs == stamp{} || jobs.settled(before, wait)) {
		l.entries[i] = newEntry(at, jobs, st)
	}
	return st, nil
}

// socketLeft reports whether a supervisor runs, is starting, or was killed: then files change without a rename.
func (l *lister) socketLeft(name string) bool {
	var st unix.Stat_t
	return unix.Fstatat(int(l.parent.Fd()), name+"/"+state.ControlSock, &st, unix.AT_SYMLINK_NOFOLLOW) == nil
}

// close writes the index if it has become old. An error only makes the next list slower.
func (l *lister) close() {
	if l.parent == nil {
		return
	}
	defer func() { _ = l.parent.Close() }()
	if l.read < indexAgain {
		return
	}
	c := entryCoder{out: append(make([]byte, crc32.Size), indexMagic...)}
	c.text(&l.dir)
	for _, entry := range l.entries {
		if entry != "" {
			c.text(&entry)
		}
	}
	binary.LittleEndian.PutUint32(c.out, crc32.Checksum(c.out[crc32.Size:], castagnoli))
	_ = renameio.WriteFile(filepath.Join(l.home.dir, state.IndexFile), c.out, 0o600, renameio.WithStaticPermissions(0o600))
}

// maxIndex bounds what is read of an index, in bytes.
const maxIndex = 64 << 20

// readKept reads the entries of the index, none if it can't be read. It is a file of the user's own: no link is followed.
func (l *lister) readKept() string {
	f, err := os.OpenFile(filepath.Join(l.home.dir, state.IndexFile), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxIndex {
		return ""
	}
	var text strings.Builder
	text.Grow(int(info.Size()))
	sum, have := make([]byte, crc32.Size), crc32.New(castagnoli)
	_, err = io.ReadFull(f, sum)
	if err == nil {
		_, err = io.Copy(io.MultiWriter(&text, have), f)
	}
	entries, ok := strings.CutPrefix(text.String(), indexMagic)
	if err != nil || !ok || binary.LittleEndian.Uint32(sum) != have.Sum32() {
		return ""
	}
	c, dir := entryCoder{reading: true, in: entries}, ""
	if c.text(&dir); dir != l.dir {
		return ""
	}
	return c.in
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)
