package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/image"
	"github.com/msb-project/msb/image/ext4disk"
	"github.com/msb-project/msb/sandbox/internal/diskstore"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// Commit adds what the running sandbox of that name has written to its caches to what later sandboxes start with. Without
// tools it commits all caches of the sandbox. It passes on files and not a file system: a temporary sandbox without a
// network writes them to the new disk. A kill at any time changes all or nothing.
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

// cacheWork is a generation in the making, with the temporary sandbox that has its disk.
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
		if err != nil {
			return errors.Join(err, archive.Close())
		}
		if err := w.unpack(ctx, to, archive); err != nil {
			return err
		}
	}
	return nil
}

// unpack closes the archive.
func (w *cacheWork) unpack(ctx context.Context, to string, archive io.ReadCloser) error {
	reader, writer := io.Pipe()
	var copying sync.WaitGroup
	copying.Go(func() { _ = writer.CloseWithError(copyArchive(writer, archive, &w.left, nil)) })
	_, err := w.helper.Files().Unpack(ctx, to, reader, &agentclient.Owner{})
	err = errors.Join(err, reader.Close(), archive.Close()) // which end the copy
	copying.Wait()
	return err
}

// settle makes all files readable and writable for everybody, since users have different numbers in other sandboxes, and
// measures the caches.
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
