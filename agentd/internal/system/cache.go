//go:build linux

package system

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/internal/lazyregexp"
)

// Cache is a directory of a tool's cache: an overlay of what sandboxes share and
// of a Layer of this one's.
type Cache struct {
	// Key names the directory on the shared disk.
	Key string
	// Path is absolute, or below the user's home with "~/" in front.
	Path string
}

const (
	// cachesDir is where the shared disk is mounted, noCache an empty directory.
	cachesDir = "/run/msb/caches"
	noCache   = "/run/msb/no-cache"
	// aptConf is mounted over aptClean, by which images of Debian and Ubuntu
	// delete each package once it is installed.
	aptConf  = "/run/msb/apt.conf"
	aptClean = "/etc/apt/apt.conf.d/docker-clean"
	aptKey   = "apt"
)

const aptKeep = `// In place of the image's file, which would empty the cache.
APT::Keep-Downloaded-Packages "true";
Binary::apt::APT::Keep-Downloaded-Packages "true";
`

var cacheKey = lazyregexp.New(`^[a-z][a-z-]{0,31}$`)

// CacheLayer is the layer of the cache of that key.
func CacheLayer(key string) (Layer, error) {
	if !cacheKey.MatchString(key) {
		return Layer{}, fmt.Errorf("%.80q is no key of a cache", key)
	}
	lower := filepath.Join(cachesDir, key)
	if st, err := os.Lstat(lower); err != nil || !st.IsDir() {
		lower = noCache
	}
	return Layer{data: filepath.Join(upperDir, "cache", key, "data"), lower: lower}, nil
}

// Caches are overlays that are mounted nowhere yet.
type Caches struct {
	list   []Cache
	mounts []*os.File // nil for one that could not be made
	apt    int        // a copy of the mount of aptConf, or -1
}

// Empty reports whether there is nothing to mount.
func (c *Caches) Empty() bool { return len(c.list) == 0 }

// OpenCaches makes the overlays. Without a shared disk, or with one that can't be
// mounted, they begin empty. warn gets what could not be done.
func OpenCaches(ctx context.Context, list []Cache, shared *Disk, warn func(error)) *Caches {
	c := &Caches{list: list, apt: -1}
	if c.Empty() {
		return c
	}
	for _, dir := range []string{cachesDir, noCache} {
		if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // the lowest layer of what users write to
			warn(fmt.Errorf("make room for the caches: %w", err))
		}
	}
	if shared != nil {
		if err := mountCaches(ctx, *shared); err != nil {
			warn(fmt.Errorf("the caches begin empty: %w", err))
		}
	}
	for _, cache := range list {
		mount, err := cache.overlay()
		if err != nil {
			warn(fmt.Errorf("the cache %s is not there: %w", cache.Key, err))
		}
		c.mounts = append(c.mounts, mount)
		if cache.Key == aptKey && mount != nil {
			c.apt = openAptConf(warn)
		}
	}
	return c
}

func mountCaches(ctx context.Context, shared Disk) error {
	dev, err := shared.Find(ctx)
	if err != nil {
		return err
	}
	flags, options := sharedMount(true)
	err = unix.Mount(dev, cachesDir, "ext4", flags, options)
	if err != nil {
		err = fmt.Errorf("mount %s: %w", shared, err)
	}
	return err
}

func (c Cache) overlay() (*os.File, error) {
	layer, err := CacheLayer(c.Key)
	if err != nil {
		return nil, err
	}
	return layer.Overlay()
}

func openAptConf(warn func(error)) int {
	err := os.WriteFile(aptConf, []byte(aptKeep), 0o644) //nolint:gosec // apt reads it as a user of its own
	tree := -1
	if err == nil {
		tree, err = unix.OpenTree(unix.AT_FDCWD, aptConf, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	}
	if err != nil {
		warn(fmt.Errorf("keep packages for the cache of apt: %w", err))
	}
	return tree
}

// Mount mounts them for the workload and makes them the user's. The calling thread
// has entered the root, so that a link in a path leads nowhere else.
func (c *Caches) Mount(home string, uid, gid int, warn func(error)) {
	defer c.Close()
	for i, mount := range c.mounts {
		if mount == nil {
			continue
		}
		at := c.list[i].at(home)
		err := makeOwned(at, uid, gid)
		if err == nil {
			err = unix.MoveMount(int(mount.Fd()), "", unix.AT_FDCWD, at, unix.MOVE_MOUNT_F_EMPTY_PATH)
		}
		if err == nil {
			err = errors.Join(os.Chown(at, uid, gid), os.Chmod(at, 0o755)) //nolint:gosec // as tools make them
		}
		if err != nil {
			warn(fmt.Errorf("the cache %s is not there: mount it at %s: %w", c.list[i].Key, at, err))
		}
	}
	if c.apt < 0 {
		return
	}
	err := unix.MoveMount(c.apt, "", unix.AT_FDCWD, aptClean, unix.MOVE_MOUNT_F_EMPTY_PATH)
	if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR) { // an image that keeps packages
		warn(fmt.Errorf("keep packages for the cache of apt: %w", err))
	}
}

// at is where the cache is mounted for a user with that home.
func (c Cache) at(home string) string {
	rest, below := strings.CutPrefix(c.Path, "~/")
	if !below {
		return path.Clean("/" + c.Path)
	}
	return path.Join("/", home, rest)
}

// makeOwned makes a directory; what is missing of it becomes the user's.
func makeOwned(dir string, uid, gid int) error {
	if st, err := os.Stat(dir); err == nil && st.IsDir() {
		return nil
	}
	if parent := path.Dir(dir); parent != dir {
		if err := makeOwned(parent, uid, gid); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o755); err != nil { //nolint:gosec // as other tools make mount points
		return err
	}
	return os.Lchown(dir, uid, gid)
}

// Close lets go of what was not mounted.
func (c *Caches) Close() {
	for _, mount := range c.mounts {
		if mount != nil {
			_ = mount.Close()
		}
	}
	if c.apt >= 0 {
		_ = unix.Close(c.apt)
	}
	c.mounts, c.apt = nil, -1
}
