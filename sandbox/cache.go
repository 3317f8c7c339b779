package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/image"
	"github.com/msb-project/msb/image/ext4disk"
	"github.com/msb-project/msb/internal/owned"
	"github.com/msb-project/msb/sandbox/internal/diskstore"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// CacheSize bounds what all caches hold together, in bytes: the size of the file system that they are on.
const CacheSize = 32 << 30

// CacheStatus is what the sandboxes of a state directory share of a tool's cache.
type CacheStatus struct {
	// Name is the tool's, of CacheTools.
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
	// Committed is when something was committed to it at last, Sandbox what that was of.
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

// List returns those that something was committed to, in the order of their names.
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

// Commit adds what the sandbox of that name, which must run, has written to its caches to what sandboxes get that
// start from now on. Without tools it is all that the sandbox has. Files are passed on and no file system: a sandbox that
// starts for it and has no network writes them. Killed at any time it changes all or nothing.
func (cs Caches) Commit(ctx context.Context, name string, tools []string, o StartOptions) ([]CacheStatus, error) {
	all, err := cs.commit(ctx, name, tools, o)
	return all, Fail(err)
}

func (cs Caches) commit(ctx context.Context, name string, tools []string, o StartOptions) ([]CacheStatus, error) {
	st, err := loadStored(cs.home, name)
	if err != nil {
		return nil, err
	}
	if len(tools) == 0 {
		tools = st.Caches
	}
	for _, tool := range tools {
		if !slices.Contains(st.Caches, tool) {
			return nil, fmt.Errorf("%w: sandbox %s was made without --cache %s", ErrCache, name, tool)
		}
	}
	if len(tools) == 0 {
		return nil, fmt.Errorf("%w: sandbox %s was made without --cache", ErrCache, name)
	}
	from, err := connectNamed(ctx, cs.home, name)
	if err != nil {
		return nil, err
	}
	kept, err := cs.change(ctx, o, func(w *cacheWork) error {
		for _, tool := range tools {
			if err := w.take(ctx, from, tool); err != nil {
				return fmt.Errorf("cache %s: %w", tool, err)
			}
			w.kept.Tools[tool] = state.StoredCache{Committed: time.Now().UTC().Round(0), Sandbox: name}
		}
		return nil
	})
	if err = errors.Join(err, from.Close()); err != nil {
		return nil, err
	}
	return cacheStatus(kept), nil
}

// Remove empties the caches of these tools, of all without one. Sandboxes that run keep what they have.
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

// Prune removes what only sandboxes that have stopped had of the caches, and tells what.
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

// cacheWork is a generation that is being made, with the sandbox that has its disk.
type cacheWork struct {
	helper *Sandbox
	kept   *state.StoredCaches
	left   int64 // bytes that may be written
}

func (*cacheWork) keys(tool string) []string {
	all, err := state.CachesOf(tool, nil)
	if err != nil {
		return nil // one of another msb's
	}
	keys := make([]string, 0, len(all))
	for _, c := range all {
		keys = append(keys, c.Key)
	}
	return keys
}

// take copies what a sandbox wrote to a tool's cache.
func (w *cacheWork) take(ctx context.Context, from *Sandbox, tool string) error {
	for _, key := range w.keys(tool) {
		archive, err := from.Files().PackCache(ctx, key)
		if errors.Is(err, fs.ErrNotExist) {
			continue // nothing was written
		}
		if err != nil {
			return err
		}
		to := path.Join(VolumeRoot, key)
		err = w.helper.Files().Mkdir(ctx, to, MkdirOptions{Parents: true})
		if err == nil {
			_, err = w.helper.Files().Unpack(ctx, to, &boundedReader{archive, &w.left}, &agentclient.Owner{})
		}
		if err = errors.Join(err, archive.Close()); err != nil {
			return err
		}
	}
	return nil
}

// boundedReader refuses what this machine has no room for: the archive is the guest's, and may have no end.
type boundedReader struct {
	r    io.Reader
	left *int64
}

func (b *boundedReader) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if *b.left -= int64(n); *b.left < 0 {
		return 0, fmt.Errorf("what the sandbox wrote is more than this machine has room for: %w", syscall.ENOSPC)
	}
	return n, err
}

// settle gives all files to everybody, since the users of sandboxes have different numbers, and measures the caches.
func (w *cacheWork) settle(ctx context.Context) error {
	const script = `cd "$1" && chown -R 0:0 . &&
find . -mindepth 1 ! -type d ! -type f ! -type l -exec rm -f {} + &&
find . -mindepth 1 -type d ! -perm 777 -exec chmod 777 {} + &&
find . -type f ! -perm 666 ! -perm 777 -exec chmod u-s,g-s,-t,a+rwX {} + &&
chmod 755 . && du -sk -- * && sync`
	var out, complaints bytes.Buffer
	status, err := w.helper.Exec(ctx, ExecOptions{Argv: []string{"/bin/sh", "-c", script, "sh", VolumeRoot}, Stdout: &out, Stderr: &complaints})
	if err != nil {
		return err
	}
	if status.Code != 0 {
		return fmt.Errorf("settling the caches: exit code %d: %.200q", status.Code, complaints.String())
	}
	sizes := map[string]int64{}
	for line := range strings.Lines(out.String()) {
		size, key, _ := strings.Cut(strings.TrimSpace(line), "\t")
		if n, err := strconv.ParseInt(size, 10, 64); err == nil {
			sizes[key] = n << 10
		}
	}
	for tool, c := range w.kept.Tools {
		c.Bytes = 0
		for _, key := range w.keys(tool) {
			c.Bytes += sizes[key]
		}
		w.kept.Tools[tool] = c
	}
	return nil
}

// change makes a generation out of the newest one: change works on a copy of its disk, which a sandbox of its own has.
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

// renew makes a generation of what build puts into a directory. newest is the generation before, "" for none. Nothing is
// made if build returns nil.
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

// publishCaches gives a generation its name. Its lock is held as machines hold it, which start as soon as it has the name.
func publishCaches(lock *os.File, work, generation string) error {
	if err := state.ShareLock(lock); err != nil {
		return err
	}
	return os.Rename(work, generation)
}

// lockWork makes the directory of a generation that is being made, or empties what a killed command left in it.
func (cs Caches) lockWork() (*os.File, error) {
	if err := makeDir(state.CachesPath(cs.home.dir), mkdirReal); err != nil {
		return nil, err
	}
	dir := state.CachesPath(cs.home.dir, state.CacheWork)
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	lock, err := state.LockDir(dir, os.O_CREATE)
	if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, fs.ErrNotExist) { // removed just now by a sweep
		return nil, fmt.Errorf("%w; wait until it is done", state.ErrCacheBusy)
	}
	if err != nil {
		return nil, err
	}
	if state.CheckLock(lock, filepath.Join(dir, state.LockFile)) != nil {
		err = fmt.Errorf("%w; try again", state.ErrCacheBusy)
	}
	for _, file := range []string{state.CacheDisk, state.CacheFile} {
		if err == nil {
			err = state.UnlessGone(os.Remove(filepath.Join(dir, file)))
		}
	}
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock, nil
}

func (cs Caches) build(ctx context.Context, dir, newest string, o StartOptions, change func(*cacheWork) error) (*state.StoredCaches, error) {
	disk, old := filepath.Join(dir, state.CacheDisk), state.CachesPath(cs.home.dir, newest, state.CacheDisk)
	kept := newStoredCaches()
	_, err := os.Lstat(old)
	if newest == "" || errors.Is(err, fs.ErrNotExist) {
		err = image.CreateUpper(disk, CacheSize)
	} else if kept, err = state.ReadCaches(state.CachesPath(cs.home.dir, newest)); err == nil {
		err = diskstore.CopyDisk(ctx, disk, old)
	}
	if err != nil {
		return nil, err
	}
	w := &cacheWork{kept: kept}
	if w.left, err = state.Spare(dir); err != nil {
		return nil, err
	}
	w.helper, err = Start(ctx, Config{Home: cs.home.dir, Program: o.Program, Progress: o.Progress, Notice: o.Notice, NoNet: true, cacheWork: disk})
	if err != nil {
		return nil, err
	}
	if err = change(w); err == nil {
		err = w.settle(ctx)
	}
	if err = errors.Join(err, w.helper.Close()); err == nil {
		err = ext4disk.CheckClosed(disk) // no machine that has it for reading could finish what it lacks
	}
	if err == nil {
		err = syncFile(disk)
	}
	return kept, err
}

// sweepCaches removes what a command left that was killed while it changed the caches.
func sweepCaches(h *Home) error {
	err := sweepDir(h, state.CachesDir, func(all *os.File, name string) error {
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
