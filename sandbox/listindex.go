package sandbox

import (
	"bytes"
	"cmp"
	"encoding/gob"
	"os"
	"path/filepath"
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
	// indexVersion is that of indexFile's content; another one is not read.
	indexVersion = 1
)

// index holds what was read about stopped sandboxes, so that a list need not open ten thousand files. It is a cache: it may
// be removed, and an unreadable one is ignored.
type index struct {
	Version int
	Dir     string // of the sandboxes
	Entries map[string]*indexed
}

// indexed is a stopped sandbox as of the last change of its directory. Every later change renames a file in its directory,
// or in that of its jobs.
type indexed struct {
	At, Jobs stamp
	Status   Status
}

// stamp changes when anything is made, renamed or removed in a directory.
type stamp struct {
	Device, Inode uint64
	Modified      [2]int64
	Changed       [2]int64
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
	return at.Sub(time.Unix(s.Modified[0], s.Modified[1])) > wait && at.Sub(time.Unix(s.Changed[0], s.Changed[1])) > wait
}

// lister reads sandboxes with the help of the index.
type lister struct {
	home   *Home
	parent *os.File
	kept   index
	fresh  index
	read   int // sandboxes that the index didn't have
}

func newLister(h *Home, n int) *lister {
	l := &lister{home: h, kept: index{}}
	if n < indexFrom || !h.made.IsZero() {
		return l
	}
	dir := filepath.Join(h.dir, state.NamedDir)
	parent, err := os.Open(dir)
	if err != nil {
		return l
	}
	l.parent = parent
	l.fresh = index{Version: indexVersion, Dir: dir, Entries: make(map[string]*indexed, n)}
	b, err := readIndex(filepath.Join(h.dir, state.IndexFile))
	if err == nil && gob.NewDecoder(bytes.NewReader(b)).Decode(&l.kept) == nil && l.kept.Version == indexVersion && l.kept.Dir == dir {
		return l
	}
	l.kept = index{}
	return l
}

// stamps takes the stamps of the sandboxes' directories, two at once, since a long list spends most of its time there.
func (l *lister) stamps(names []string) []stamp {
	all := make([]stamp, len(names))
	if l.parent == nil {
		return all
	}
	var both sync.WaitGroup
	half := len(names) / 2
	for _, part := range [][2]int{{0, half}, {half, len(names)}} {
		both.Go(func() {
			for i := part[0]; i < part[1]; i++ {
				all[i] = stampOf(int(l.parent.Fd()), names[i])
			}
		})
	}
	both.Wait()
	return all
}

// status is Inspect's result, or the index's. at was taken before.
func (l *lister) status(name string, at stamp) (*Status, error) {
	if l.parent == nil {
		return l.home.Inspect(name)
	}
	jobs := name + "/" + state.JobsDir
	if one := l.kept.Entries[name]; one != nil && at != (stamp{}) && one.At == at && (one.Jobs == stamp{} || one.Jobs == stampOf(int(l.parent.Fd()), jobs)) {
		l.fresh.Entries[name] = one
		return &one.Status, nil
	}
	before, jobsBefore := time.Now(), stampOf(int(l.parent.Fd()), jobs)
	st, err := l.home.Inspect(name)
	if err != nil {
		return nil, err
	}
	l.read++
	wait := cmp.Or(l.home.settled, indexSettled)
	if !st.Running && !l.socketLeft(name) && at.settled(before, wait) && (jobsBefore == stamp{} || jobsBefore.settled(before, wait)) {
		l.fresh.Entries[name] = &indexed{at, jobsBefore, *st}
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
	var b bytes.Buffer
	if gob.NewEncoder(&b).Encode(&l.fresh) == nil {
		_ = renameio.WriteFile(filepath.Join(l.home.dir, state.IndexFile), b.Bytes(), 0o600, renameio.WithStaticPermissions(0o600))
	}
}

// maxIndex bounds what is read of an index, in bytes.
const maxIndex = 64 << 20

// readIndex reads a file of the user's own, and follows no link.
func readIndex(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxIndex {
		return nil, os.ErrInvalid
	}
	b := make([]byte, info.Size())
	n, err := f.ReadAt(b, 0)
	return b[:n], err
}
