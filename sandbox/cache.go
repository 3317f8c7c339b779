package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/internal/owned"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// CacheSize bounds what all caches hold together, in bytes: the size of the file system that they are on.
const CacheSize = 32 << 30

// CacheStatus describes the part of a tool's cache that the sandboxes of a state directory share.
type CacheStatus struct {
	// Name is the tool's, of CacheTools.
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
	// Committed is when something was last committed to it, Sandbox the sandbox that it came from.
	Committed time.Time `json:"committed"`
	Sandbox   string    `json:"sandbox"`
}

// CacheTools are the names of the tools that Config.Caches may have.
func CacheTools() []string { return state.CacheTools() }

// checkCaches says why the caches can't be.
func (c *Config) checkCaches() error {
	if len(c.Caches) > 0 && c.Floor != nil {
		return fmt.Errorf("%w: under an operator's floor a sandbox gets what the floor names, and a floor can't name caches; leave them out", ErrCache)
	}
	for i, tool := range c.Caches {
		if _, err := state.CachesOf(tool, nil); err != nil {
			return err
		}
		if slices.Contains(c.Caches[:i], tool) {
			return fmt.Errorf("%w: %s twice; name it once", ErrCache, tool)
		}
	}
	return nil
}

// Caches are the caches that the sandboxes of a state directory share.
type Caches struct{ home *Home }

// Caches are h's.
func (h *Home) Caches() Caches { return Caches{h} }

// List returns the caches that something was committed to, by name.
func (cs Caches) List() ([]CacheStatus, error) {
	dir, lock, err := state.AttachCaches(cs.home.dir)
	if dir == "" || err != nil {
		return nil, Fail(err)
	}
	kept, err := state.ReadCaches(dir)
	if err = errors.Join(err, lock.Close()); err != nil {
		return nil, Fail(err)
	}
	return cacheStatus(kept), nil
}

func cacheStatus(kept *state.StoredCaches) []CacheStatus {
	all := make([]CacheStatus, 0, len(kept.Tools))
	for _, name := range slices.Sorted(maps.Keys(kept.Tools)) {
		c := kept.Tools[name]
		all = append(all, CacheStatus{Name: name, Bytes: c.Bytes, Committed: c.Committed, Sandbox: c.Sandbox})
	}
	return all
}

// Remove empties the caches of these tools, or of all tools if none is given. Running sandboxes keep what they have.
func (cs Caches) Remove(ctx context.Context, tools []string, o StartOptions) error {
	for _, tool := range tools {
		if _, err := state.CachesOf(tool, nil); err != nil {
			return Fail(err)
		}
	}
	if len(tools) == 0 {
		return Fail(cs.empty())
	}
	all, err := cs.List()
	if err != nil {
		return err
	}
	stays := func(c CacheStatus) bool { return !slices.Contains(tools, c.Name) }
	switch {
	case !slices.ContainsFunc(all, func(c CacheStatus) bool { return !stays(c) }):
		return nil
	case !slices.ContainsFunc(all, stays):
		return Fail(cs.empty())
	}
	_, err = cs.change(ctx, o, func(w *cacheWork) error {
		for _, tool := range tools {
			for _, key := range w.keys(tool) {
				if err := w.helper.Files().Remove(ctx, path.Join(VolumeRoot, key), true); err != nil && !errors.Is(err, fs.ErrNotExist) {
					return err
				}
			}
			delete(w.kept.Tools, tool)
		}
		return nil
	})
	return Fail(err)
}

// Prune removes old generations that no running sandbox uses, and returns what it removed.
func (cs Caches) Prune(dry bool) (pruned []Pruned, err error) {
	names, err := state.Generations(cs.home.dir)
	if err != nil || len(names) == 0 {
		return nil, Fail(err)
	}
	for _, name := range names[1:] {
		size := bytesBelow(state.CachesPath(cs.home.dir, name))
		lock, err := state.LockGeneration(cs.home.dir, name)
		if errors.Is(err, unix.EWOULDBLOCK) {
			continue
		}
		err = state.UnlessGone(err) // a removal that was killed took the lock, and left the directory
		if err == nil && !dry {
			err = state.RemoveOwn(state.CachesPath(cs.home.dir, name), state.CacheForm)
		}
		if lock != nil {
			err = errors.Join(err, lock.Close())
		}
		if err != nil {
			return pruned, Fail(err)
		}
		pruned = append(pruned, Pruned{PruneCache, name, size})
	}
	return pruned, nil
}

// change makes a new generation from the newest one: change works in a temporary sandbox with a copy of its disk.
func (cs Caches) change(ctx context.Context, o StartOptions, change func(*cacheWork) error) (*state.StoredCaches, error) {
	return cs.renew(func(dir, newest string) (*state.StoredCaches, error) {
		return cs.build(ctx, dir, newest, o, change)
	})
}

// empty makes a generation that has nothing in it.
func (cs Caches) empty() error {
	_, err := cs.renew(func(_, newest string) (*state.StoredCaches, error) {
		if newest == "" {
			return nil, nil
		}
		return newStoredCaches(), nil
	})
	return err
}

func newStoredCaches() *state.StoredCaches {
	return &state.StoredCaches{Version: state.CacheVersion, Tools: map[string]state.StoredCache{}}
}

// renew makes a generation from what build puts into a directory. newest is the previous generation, "" for none. If build
// returns nil, no generation is made.
func (cs Caches) renew(build func(dir, newest string) (*state.StoredCaches, error)) (*state.StoredCaches, error) {
	lock, err := cs.lockWork()
	if err != nil {
		return nil, err
	}
	dir, newest := state.CachesPath(cs.home.dir, state.CacheWork), ""
	names, err := state.Generations(cs.home.dir)
	if len(names) > 0 {
		newest = names[0]
	}
	var kept *state.StoredCaches
	if err == nil {
		kept, err = build(dir, newest)
	}
	if err == nil && kept != nil {
		err = state.WriteJSON(dir, state.CacheFile, kept)
	}
	if err == nil && kept != nil {
		err = publishCaches(lock, dir, state.CachesPath(cs.home.dir, state.NextGeneration(newest)))
	}
	if err != nil || kept == nil {
		return nil, errors.Join(err, state.RemoveOwn(dir, state.CacheForm), lock.Close())
	}
	if err := lock.Close(); err != nil {
		return nil, err
	}
	_, err = cs.Prune(false)
	return kept, err
}

// publishCaches gives a generation its name. It changes to a shared lock first, since machines may use the generation as
// soon as it has the name.
func publishCaches(lock *os.File, work, generation string) error {
	if err := state.ShareLock(lock); err != nil {
		return err
	}
	return os.Rename(work, generation)
}

// sweepCaches removes what a command left behind that was killed while it changed the caches.
func sweepCaches(h *Home) error {
	err := sweepDir(h, state.CachesDir, func(all *os.File, e fs.DirEntry) error {
		name := e.Name()
		if name != state.CacheWork {
			return nil
		}
		dir, err := owned.Open(all, name)
		if err != nil {
			return err
		}
		defer func() { _ = dir.Close() }()
		lock, err := state.LockAt(dir, 0)
		switch {
		case errors.Is(err, unix.EWOULDBLOCK):
			return nil
		case errors.Is(err, fs.ErrNotExist) && !abandoned(dir):
			return nil
		case errors.Is(err, fs.ErrNotExist):
			return state.RemoveIn(all, dir, name, state.CacheForm)
		case err != nil:
			return err
		}
		return errors.Join(state.RemoveIn(all, dir, name, state.CacheForm), lock.Close())
	})
	return state.UnlessGone(err)
}
