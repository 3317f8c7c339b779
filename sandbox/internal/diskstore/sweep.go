package diskstore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/internal/owned"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// Sweep removes what killed commands left, and then chunks that no snapshot needs. It does nothing where nothing was left,
// and while somebody uses chunks.
func (s *Store) Sweep() error {
	tmp, err := os.OpenFile(s.path(tmpDir), os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer func() { _ = tmp.Close() }()
	if names, err := owned.Names(tmp); err != nil || len(names) == 0 {
		return err
	}
	lock, err := s.tryLock(unix.LOCK_EX)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	if err := s.dropChunks(); err != nil { // first: the directories in tmp are what tells a later sweep of them
		return fmt.Errorf("chunks of snapshots: %w", err)
	}
	names, err := owned.Names(tmp)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := removeWork(tmp, name); err != nil && !errors.Is(err, owned.ErrForeign) {
			return fmt.Errorf("left-over of a snapshot: %w", err)
		}
	}
	return nil
}

func removeWork(tmp *os.File, name string) error {
	if !workName(name) {
		return nil
	}
	dir, err := owned.Open(tmp, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(owned.Remove(tmp, dir, name, workForm, ""), dir.Close())
}

// dropChunks removes chunks that no list names. While a list can't be read, all stay.
func (s *Store) dropChunks() error {
	needed, err := s.needed()
	if errors.Is(err, state.ErrSnapshotDamaged) {
		return nil
	}
	if err != nil {
		return err
	}
	chunks, err := os.OpenFile(s.path(chunksDir), os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer func() { _ = chunks.Close() }()
	groups, err := owned.Names(chunks)
	if err != nil {
		return err
	}
	for _, group := range groups {
		if !groupName(group) {
			continue
		}
		if err := dropGroup(chunks, group, needed); err != nil && !errors.Is(err, owned.ErrForeign) {
			return err
		}
	}
	return nil
}

func dropGroup(chunks *os.File, group string, needed map[string]bool) error {
	dir, err := owned.Open(chunks, group)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	names, err := owned.Names(dir)
	if err != nil {
		return err
	}
	left := len(names)
	for _, name := range names {
		if !chunkName(name) || needed[name] {
			continue
		}
		if err := unix.Unlinkat(int(dir.Fd()), name, 0); err != nil {
			return &os.PathError{Op: "remove", Path: dir.Name() + "/" + name, Err: err}
		}
		left--
	}
	if left == 0 {
		_ = unix.Unlinkat(int(chunks.Fd()), group, unix.AT_REMOVEDIR) // an empty one does no harm
	}
	return nil
}

// needed are the chunks that some snapshot has.
func (s *Store) needed() (map[string]bool, error) {
	names, err := s.Names()
	if err != nil {
		return nil, err
	}
	needed := make(map[string]bool)
	for _, name := range names {
		_, list, err := s.Load(name)
		if errors.Is(err, state.ErrNoSnapshot) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, c := range list.chunks {
			needed[c.name()] = true
		}
	}
	return needed, nil
}
