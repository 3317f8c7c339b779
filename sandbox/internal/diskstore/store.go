package diskstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/internal/lazyregexp"
	"github.com/msb-project/msb/internal/owned"
	"github.com/msb-project/msb/sandbox/internal/state"
)

const (
	namesDir  = "names"
	chunksDir = "chunks"
	tmpDir    = "tmp"
	lockFile  = "lock"

	metaFile = "snapshot.json"
	listFile = "disk.chunks"
	// memoryFile is in a directory of tmp until the snapshot has its name.
	memoryFile = "memory"

	newDir     = "new"     // in a directory of tmp: a snapshot before its rename
	droppedDir = "dropped" // a snapshot that is removed
	stagedDisk = "disk"    // a disk that shares its blocks with a sandbox's
)

var (
	workName  = nameOf(26, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") // rand.Text
	workFile  = lazyregexp.New(`^(disk|archive|memory|chunk-[0-9]+)$`)
	groupName = nameOf(2, hexDigits)
	chunkName = nameOf(64, hexDigits)
)

// Store is the snapshots below one directory. It is safe for concurrent use by several goroutines and processes.
type Store struct {
	dir string
	// state.Free, state.Spare, syncAll, shareAll and shareRange, but in tests
	free, forGuests func(dir string) (int64, error)
	sync            func(dir string) error
	shareAll        func(to, from *os.File) error
	shareRange      func(to *os.File, toAt int64, from *os.File, fromAt, length int64) error
}

// Open opens the store in dir, which exists.
func Open(dir string) (*Store, error) {
	for _, sub := range []string{namesDir, chunksDir, tmpDir} {
		path := filepath.Join(dir, sub)
		if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("open the snapshots: %w", err)
		}
		if info, err := os.Lstat(path); err != nil || !info.IsDir() {
			return nil, fmt.Errorf("%w: %s is no directory, and links are not followed here; move it away", state.ErrHome, path)
		}
	}
	return &Store{dir: dir, free: state.Free, forGuests: state.Spare, sync: syncAll, shareAll: shareAll, shareRange: shareRange}, nil
}

// snapshotForm is that of one snapshot's directory, workForm that of one in tmp.
const hexDigits = "0123456789abcdef"

// nameOf tells names of n characters out of an alphabet. Regular expressions of them take milliseconds of each start of msb.
func nameOf(n int, alphabet string) func(string) bool {
	return func(name string) bool { return len(name) == n && strings.Trim(name, alphabet) == "" }
}

var snapshotForm = owned.Files(func(name string) bool { return name == metaFile || name == listFile || name == memoryFile })

func workForm(name string, mode fs.FileMode) (owned.Form, bool) {
	if name == newDir || name == droppedDir {
		return snapshotForm, mode == fs.ModeDir
	}
	return nil, mode == 0 && workFile.MatchString(name)
}

// Form is that of a store's directory.
func Form(name string, mode fs.FileMode) (owned.Form, bool) {
	if name == lockFile {
		return nil, mode == 0
	}
	inside, ok := map[string]owned.Form{
		namesDir:  owned.Dirs(func(name string) bool { return state.CheckName(name) == nil }, snapshotForm),
		chunksDir: owned.Dirs(groupName, owned.Files(chunkName)),
		tmpDir:    owned.Dirs(workName, workForm),
	}[name]
	return inside, ok && mode == fs.ModeDir
}

func (s *Store) path(elem ...string) string {
	return filepath.Join(append([]string{s.dir}, elem...)...)
}

// tryLock takes the store's lock (unix.LOCK_SH or LOCK_EX); unix.EWOULDBLOCK tells that somebody has it in the other way.
func (s *Store) tryLock(how int) (*os.File, error) {
	f, err := os.OpenFile(s.path(lockFile), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// use keeps every chunk that is there from being removed until the file is closed. It waits for who removes chunks.
func (s *Store) use(ctx context.Context) (*os.File, error) {
	const pause = 20 * time.Millisecond
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		f, err := s.tryLock(unix.LOCK_SH)
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return f, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-tick.C:
		}
	}
}

// newWork makes a directory in tmp. Whoever finds it with the lock free removes it, and chunks that nobody needs.
func (s *Store) newWork() (string, error) {
	dir := s.path(tmpDir, rand.Text())
	return dir, os.Mkdir(dir, 0o700)
}

// Remove removes the snapshot of that name, and the chunks that no other needs: at once, or by a later command while
// others use chunks.
func (s *Store) Remove(name string) error {
	if err := state.CheckSnapshotName(name); err != nil {
		return err
	}
	if err := s.checkOwn(name); err != nil {
		return err
	}
	dir, err := s.newWork()
	if err != nil {
		return err
	}
	err = os.Rename(s.path(namesDir, name), filepath.Join(dir, droppedDir))
	if errors.Is(err, fs.ErrNotExist) {
		err = missing(name)
	}
	return errors.Join(err, s.Sweep())
}

// checkOwn is an error if a snapshot's directory holds files that msb did not make: no removal may delete those.
func (s *Store) checkOwn(name string) error {
	names, err := os.Open(s.path(namesDir))
	if err != nil {
		return err
	}
	defer func() { _ = names.Close() }()
	dir, err := owned.Open(names, name)
	if errors.Is(err, fs.ErrNotExist) {
		return missing(name)
	}
	if err == nil {
		err = errors.Join(owned.Check(dir, snapshotForm), dir.Close())
	}
	if err != nil {
		return fmt.Errorf("snapshot %s stays: %w; move it away first", name, err)
	}
	return nil
}

func missing(name string) error {
	return fmt.Errorf("%w: %s; `msb snapshot ls` lists those there are", state.ErrNoSnapshot, name)
}
