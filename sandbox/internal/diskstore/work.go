package diskstore

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sync/errgroup"

	"github.com/msb-project/msb/sandbox/internal/state"
)

// Work is a snapshot that is being made. It ends by Commit or Abort.
type Work struct {
	s    *Store
	dir  string
	lock *os.File
	room func() error // for one chunk more
	mu   sync.Mutex
	n    int                        // of chunk files
	put  map[[sha256.Size]byte]bool // chunks that this work has compared or written
}

// Begin begins a snapshot. It waits for who removes chunks.
func (s *Store) Begin(ctx context.Context) (*Work, error) {
	lock, err := s.use(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := s.newWork()
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return &Work{s: s, dir: dir, lock: lock, room: s.least, put: make(map[[sha256.Size]byte]bool)}, nil
}

// Abort removes what was made. After Commit it does nothing.
func (w *Work) Abort() error {
	if w.lock == nil {
		return nil
	}
	err := w.lock.Close()
	w.lock = nil
	return errors.Join(err, w.s.Sweep())
}

// Name is that of the directory in which the snapshot is made.
func (w *Work) Name() string { return filepath.Base(w.dir) }

// MemoryOfWork is where the memory of a snapshot is written that is being made in a store: work is Work.Name, which may come
// from another process.
func MemoryOfWork(store, work string) (string, error) {
	if !workName(work) {
		return "", fmt.Errorf("no snapshot is made in %.40q", work)
	}
	return filepath.Join(store, tmpDir, work, memoryFile), nil
}

// Memory is the size of the memory that was written, 0 for none.
func (w *Work) Memory() (int64, error) {
	info, err := os.Lstat(filepath.Join(w.dir, memoryFile))
	if err != nil {
		return 0, state.UnlessGone(err)
	}
	return info.Size(), nil
}

// moveMemory moves the memory, if there is one.
func moveMemory(from, to string) error {
	return state.UnlessGone(os.Rename(filepath.Join(from, memoryFile), filepath.Join(to, memoryFile)))
}

// Commit gives the snapshot its name; state.ErrSnapshotExists if another has it. Meta.Disk is set.
func (w *Work) Commit(name string, m *Meta, list *List) error {
	if err := state.CheckSnapshotName(name); err != nil {
		return err
	}
	fresh := filepath.Join(w.dir, newDir)
	if err := errors.Join(moveMemory(fresh, w.dir), os.RemoveAll(fresh)); err != nil { // of a name that was taken
		return err
	}
	var err error
	if m.Memory, err = w.Memory(); err != nil {
		return err
	}
	if err := writeTo(fresh, m, list); err != nil {
		return err
	}
	if err := moveMemory(w.dir, fresh); err != nil {
		return err
	}
	if err := w.s.sync(w.s.dir); err != nil {
		return err
	}
	err = os.Rename(fresh, w.s.path(namesDir, name))
	if errors.Is(err, fs.ErrExist) { // a directory that holds something is never replaced
		return fmt.Errorf("%w: %s; `msb snapshot rm %s` removes it", state.ErrSnapshotExists, name, name)
	}
	if err != nil {
		return err
	}
	// What is left of the work has nothing in it that counts: a later sweep takes it if this one doesn't.
	_ = os.RemoveAll(w.dir)
	_ = w.lock.Close()
	w.lock = nil
	return nil
}

// Stage makes a copy of a disk that shares its blocks, which takes no time, and returns its path; "" where the file system
// can't.
func (w *Work) Stage(disk string) (string, error) {
	path := filepath.Join(w.dir, stagedDisk)
	err := cloneFile(path, disk, w.s.shareAll)
	if errors.Is(err, errNoReflink) {
		return "", nil
	}
	return path, err
}

// CanStage reports whether Stage will make a copy of the disk.
func (w *Work) CanStage(disk string) (bool, error) {
	path, err := w.Stage(disk)
	if path == "" || err != nil {
		return false, err
	}
	return true, os.Remove(path)
}

// Add stores the chunks of a disk, which nobody may write to meanwhile, and returns their list.
func (w *Work) Add(ctx context.Context, disk string) (*List, error) { return w.add(ctx, disk, true) }

// AddChanging stores the chunks of a disk that somebody writes to, so that Add has less to do once nobody does.
func (w *Work) AddChanging(ctx context.Context, disk string) error {
	_, err := w.add(ctx, disk, false)
	return err
}

// add shares the disk's blocks only if it is still: what is shared is what the disk holds then, and not what was read.
func (w *Work) add(ctx context.Context, disk string, still bool) (*List, error) {
	f, err := os.Open(disk)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	list := &List{Size: info.Size()}
	places, err := chunksWithData(f, info.Size())
	if err != nil {
		return nil, err
	}
	if list.Size > maxDiskBytes || len(places) > maxChunks {
		return nil, fmt.Errorf("a disk of %d bytes with %d MiB in it is too large for a snapshot: at most %d TiB and 1 TiB", list.Size, len(places)*(chunkBytes>>20), int64(maxDiskBytes)>>40)
	}
	found := make([]*chunkRef, len(places))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i, at := range places {
		g.Go(func() (err error) {
			if err := ctx.Err(); err != nil {
				return err
			}
			found[i], err = w.addChunk(f, at, list.length(at), still)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	for _, c := range found {
		if c != nil {
			list.chunks = append(list.chunks, *c)
		}
	}
	return list, nil
}

// addChunk returns nil for one that is all zeros.
func (w *Work) addChunk(disk *os.File, at, length int64, still bool) (*chunkRef, error) {
	buf := buffers.Get().(*[chunkBytes]byte) // the pool holds nothing else
	defer buffers.Put(buf)
	data := buf[:length]
	if _, err := disk.ReadAt(data, at*chunkBytes); err != nil {
		return nil, err
	}
	if allZero(data) {
		return nil, nil
	}
	c := &chunkRef{at: at, sum: sha256.Sum256(data)}
	if !still {
		disk = nil
	}
	return c, w.store(c, data, disk)
}

// store puts a chunk in its place, with the blocks of disk unless that is nil. One that is there is compared: a damaged one would damage each snapshot that shares it.
func (w *Work) store(c *chunkRef, data []byte, disk *os.File) error {
	w.mu.Lock()
	n, known := w.n, w.put[c.sum]
	w.n++
	w.mu.Unlock()
	if known {
		return nil
	}
	path := w.s.chunkPath(c)
	if !holds(path, data) {
		if err := w.room(); err != nil {
			return err
		}
		temp := filepath.Join(w.dir, fmt.Sprintf("chunk-%d", n))
		if err := w.s.writeChunk(temp, c, data, disk); err != nil {
			return err
		}
		if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if err := os.Rename(temp, path); err != nil {
			return err
		}
	}
	w.mu.Lock()
	w.put[c.sum] = true
	w.mu.Unlock()
	return nil
}

// least is leaves for the store's directory.
func (s *Store) least() error { return leaves(s.dir, s.free) }

// leaves refuses to take the room that running sandboxes need: without it their disks are damaged.
func leaves(dir string, free func(string) (int64, error)) error {
	left, err := free(dir)
	if err == nil && left < state.MinFree {
		err = fmt.Errorf("%s: a copy of a disk leaves %d MiB free for the sandboxes that run: %w", dir, state.MinFree>>20, syscall.ENOSPC)
	}
	return err
}

// spare leaves more room than least, for a disk whose content somebody else
// chose.
func (s *Store) spare() error {
	_, err := s.forGuests(s.dir)
	return errors.Join(s.least(), err)
}

func (s *Store) chunkPath(c *chunkRef) string {
	name := c.name()
	return s.path(chunksDir, name[:2], name)
}

// holds reports whether the file holds data and nothing else.
func holds(path string, data []byte) bool {
	buf := buffers.Get().(*[chunkBytes]byte) // the pool holds nothing else
	defer buffers.Put(buf)
	n, err := readFile(path, buf[:])
	return err == nil && bytes.Equal(buf[:n], data)
}

// writeChunk makes the file of a chunk, which shares disk's blocks where it can. disk may be nil.
func (s *Store) writeChunk(path string, c *chunkRef, data []byte, disk *os.File) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o400)
	if err != nil {
		return err
	}
	err = errNoReflink
	if disk != nil {
		err = s.shareRange(f, 0, disk, c.at*chunkBytes, int64(len(data)))
	}
	if errors.Is(err, errNoReflink) {
		err = f.Truncate(int64(len(data)))
		if err == nil {
			err = writeSparse(f, 0, data)
		}
	}
	return errors.Join(err, f.Close())
}

var buffers = sync.Pool{New: func() any { return new([chunkBytes]byte) }}
