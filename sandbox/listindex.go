package sandbox

import (
	"bytes"
	"cmp"
	"encoding/gob"
	"os"
	"path/filepath"
	"slices"
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
	indexVersion = 2
)

// index holds what was read about stopped sandboxes, so that a list need not open ten thousand files. It is a cache: it may
// be removed, and an unreadable one is ignored.
type index struct {
	Version int
	Dir     string // of the sandboxes
	// Parts hold the sandboxes in the order of their names, each part in its own gob, so that several are read at once.
	Parts [][]byte
}

// indexParts is how many parts there are.
const indexParts = 4

// indexed is a stopped sandbox as of the last change of its directory. Every later change renames a file in its directory,
// or in that of its jobs.
type indexed struct {
	At, Jobs stamp
	Status   Status
}

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

// lister reads sandboxes, one after the other in the order of their names, with the help of the index.
type lister struct {
	home   *Home
	dir    string
	parent *os.File // nil where there is no index
	at     []stamp  // of the sandboxes' directories
	kept   [][]indexed
	fresh  []*indexed
	read   int // sandboxes that the index didn't have
}

func newLister(h *Home, names []string) *lister {
	l := &lister{home: h, dir: filepath.Join(h.dir, state.NamedDir), at: make([]stamp, len(names))}
	if len(names) < indexFrom || !h.made.IsZero() {
		return l
	}
	parent, err := os.Open(l.dir)
	if err != nil {
		return l
	}
	l.parent, l.fresh = parent, make([]*indexed, 0, len(names))
	var all sync.WaitGroup // most of the time of a long list goes here
	l.readKept(&all)
	for i, name := range names {
		l.at[i] = stampOf(int(parent.Fd()), name)
	}
	all.Wait()
	return l
}

// readKept begins to read what was kept. A part that can't be read is empty.
func (l *lister) readKept(all *sync.WaitGroup) {
	var x index
	b, err := readIndex(filepath.Join(l.home.dir, state.IndexFile))
	if err != nil || gob.NewDecoder(bytes.NewReader(b)).Decode(&x) != nil || x.Version != indexVersion || x.Dir != l.dir || len(x.Parts) > indexParts {
		return
	}
	l.kept = make([][]indexed, len(x.Parts))
	for i, part := range x.Parts {
		all.Go(func() {
			var entries []indexed
			if gob.NewDecoder(bytes.NewReader(part)).Decode(&entries) == nil {
				l.kept[i] = entries
			}
		})
	}
}

// find is what was kept of a sandbox, nil for nothing.
func (l *lister) find(name string) *indexed {
	for len(l.kept) > 0 {
		for len(l.kept[0]) > 0 && l.kept[0][0].Status.Name < name {
			l.kept[0] = l.kept[0][1:]
		}
		if len(l.kept[0]) > 0 {
			if one := &l.kept[0][0]; one.Status.Name == name {
				return one
			}
			return nil
		}
		l.kept = l.kept[1:]
	}
	return nil
}

// status is Inspect's result, or the index's, for the sandbox names[i].
func (l *lister) status(i int, name string) (*Status, error) {
	if l.parent == nil {
		return l.home.Inspect(name)
	}
	jobs, at := name+"/"+state.JobsDir, l.at[i]
	if one := l.find(name); one != nil && at != (stamp{}) && one.At == at && (one.Jobs == stamp{} || one.Jobs == stampOf(int(l.parent.Fd()), jobs)) {
		l.fresh = append(l.fresh, one)
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
		l.fresh = append(l.fresh, &indexed{at, jobsBefore, *st})
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
	x := index{Version: indexVersion, Dir: l.dir}
	for part := range slices.Chunk(l.fresh, 1+len(l.fresh)/indexParts) {
		var b bytes.Buffer
		if gob.NewEncoder(&b).Encode(part) != nil {
			return
		}
		x.Parts = append(x.Parts, b.Bytes())
	}
	var b bytes.Buffer
	if gob.NewEncoder(&b).Encode(&x) == nil {
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
