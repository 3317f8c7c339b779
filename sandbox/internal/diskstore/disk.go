package diskstore

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/sandbox/internal/state"
)

// WriteDisk makes the disk of a snapshot at path, which must not exist, and returns what the snapshot is. Each chunk
// is checked: a damaged one is state.ErrSnapshotDamaged. It leaves room on the file system: a small archive that was
// imported may name one chunk a million times. After an error there is no file. It is not synced.
func (s *Store) WriteDisk(ctx context.Context, name, path string) (m *Meta, err error) {
	lock, err := s.use(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = lock.Close() }()
	m, list, err := s.Load(name)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	room := s.least
	if m.Imported {
		room = s.spare
	}
	err = f.Truncate(list.Size)
	if err == nil {
		err = s.eachChunk(ctx, name, list, func(c *chunkRef, data []byte, chunk *os.File) error {
			if err := room(); err != nil {
				return err
			}
			err := s.shareRange(f, c.at*chunkBytes, chunk, 0, int64(len(data)))
			if errors.Is(err, errNoReflink) {
				err = writeSparse(f, c.at*chunkBytes, data)
			}
			return err
		})
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, errors.Join(err, os.Remove(path))
	}
	return m, nil
}

// PlaceMemory puts the memory of a snapshot at path, which must not exist: as another name of the same file, which nobody
// writes to, where the file system can. m is what WriteDisk returned. If the snapshot was removed since, the error is
// state.ErrNoSnapshot, even if another one has its name now: its memory is of another instant than the disk. After an
// error there is no file.
func (s *Store) PlaceMemory(ctx context.Context, name string, m *Meta, path string) error {
	if err := state.CheckSnapshotName(name); err != nil {
		return err
	}
	err := placeFile(ctx, name, s.path(namesDir, name, memoryFile), path)
	// The directory of a snapshot is moved as a whole. If it is the same one now, the memory came from it.
	now, changed := s.LoadMeta(name)
	if changed == nil && (!now.Created.Equal(m.Created) || now.Disk != m.Disk) {
		changed = missing(name)
	}
	switch {
	case changed == nil:
		return err
	case err == nil:
		return errors.Join(changed, os.Remove(path))
	}
	return changed
}

// placeFile gives a file of a snapshot another name, or copies it.
func placeFile(ctx context.Context, name, from, to string) error {
	info, err := os.Lstat(from)
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("its memory is no file")
	}
	if err != nil {
		return damaged(name, err)
	}
	if os.Link(from, to) == nil {
		return nil
	}
	return CopyDisk(ctx, to, from)
}

// eachChunk calls do with what each chunk holds, once that is checked, from several goroutines.
func (s *Store) eachChunk(ctx context.Context, name string, list *List, do func(c *chunkRef, data []byte, chunk *os.File) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i := range list.chunks {
		c := &list.chunks[i]
		g.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			buf := buffers.Get().(*[chunkBytes]byte) // the pool holds nothing else
			defer buffers.Put(buf)
			chunk, err := s.readChunk(c, buf[:list.length(c.at)])
			if err != nil {
				return damaged(name, err)
			}
			defer func() { _ = chunk.Close() }()
			return do(c, buf[:list.length(c.at)], chunk)
		})
	}
	return g.Wait()
}

// readChunk reads a chunk of that length and compares it with its digest.
func (s *Store) readChunk(c *chunkRef, data []byte) (*os.File, error) {
	f, err := openFile(s.chunkPath(c))
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && info.Size() != int64(len(data)) {
		err = fmt.Errorf("chunk %s has %d bytes, want %d", c.name(), info.Size(), len(data))
	}
	if err == nil {
		_, err = io.ReadFull(f, data)
	}
	if err == nil && sha256.Sum256(data) != c.sum {
		err = fmt.Errorf("chunk %s holds something else than its name says", c.name())
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// CopyDisk makes a copy of a disk, which nobody may write to meanwhile, at a path that must not exist: it shares the
// blocks where the file system can, else it is as sparse as the disk, and room is left on the file system. After an
// error there is no file.
func CopyDisk(ctx context.Context, to, disk string) error {
	if err := cloneFile(to, disk, shareAll); !errors.Is(err, errNoReflink) {
		return err
	}
	from, err := os.Open(disk)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	f, err := os.OpenFile(to, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = copySparse(ctx, f, from, state.Free)
	if err = errors.Join(err, f.Close()); err != nil {
		err = errors.Join(err, os.Remove(to))
	}
	return err
}

func copySparse(ctx context.Context, to, from *os.File, free func(dir string) (int64, error)) error {
	info, err := from.Stat()
	if err == nil {
		err = to.Truncate(info.Size())
	}
	if err != nil {
		return err
	}
	const step = 4 << 20 // between looks at ctx and at the room that is left
	return eachExtent(from, info.Size(), func(start, end int64) error {
		for ; start < end; start += step {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := leaves(filepath.Dir(to.Name()), free); err != nil {
				return err
			}
			_, errFrom := from.Seek(start, io.SeekStart)
			_, errTo := to.Seek(start, io.SeekStart)
			if err := errors.Join(errFrom, errTo); err != nil {
				return err
			}
			if _, err := io.CopyN(to, from, min(step, end-start)); err != nil { // copy_file_range on Linux
				return err
			}
		}
		return nil
	})
}

// cloneFile makes a file that shares all of another's blocks; errNoReflink where that can't be.
func cloneFile(to, from string, share func(to, from *os.File) error) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(to, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = share(out, in)
	if err = errors.Join(err, out.Close()); err != nil {
		err = errors.Join(err, os.Remove(to))
	}
	return err
}

// chunksWithData are the numbers of the chunks in which a file has data, in order.
func chunksWithData(f *os.File, size int64) (places []int64, err error) {
	err = eachExtent(f, size, func(start, end int64) error {
		for at := start / chunkBytes; at*chunkBytes < end; at++ {
			if n := len(places); n == 0 || places[n-1] < at {
				places = append(places, at)
			}
		}
		return nil
	})
	return places, err
}

// blockBytes is what file systems allocate at a time; a hole is not smaller.
const blockBytes = 4 << 10

// writeSparse writes data at an offset into a file that has a hole there, and leaves the hole where data is zeros.
func writeSparse(f *os.File, at int64, data []byte) error {
	for start := 0; start < len(data); {
		if end := min(start+blockBytes, len(data)); allZero(data[start:end]) {
			start = end
			continue
		}
		end := start
		for end < len(data) && !allZero(data[end:min(end+blockBytes, len(data))]) {
			end = min(end+blockBytes, len(data))
		}
		if _, err := f.WriteAt(data[start:end], at+int64(start)); err != nil {
			return err
		}
		start = end
	}
	return nil
}

var zeros [chunkBytes]byte

func allZero(b []byte) bool { return bytes.Equal(b, zeros[:len(b)]) }

// openFile opens a file of the store's: no link is followed, and nobody waited for.
func openFile(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
}

// readFile reads a file that fits into buf.
func readFile(path string, buf []byte) (int, error) {
	f, err := openFile(path)
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	if !info.Mode().IsRegular() || info.Size() > int64(len(buf)) {
		return 0, fmt.Errorf("%s is no chunk", path)
	}
	return io.ReadFull(f, buf[:info.Size()])
}
