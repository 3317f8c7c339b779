package state

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/internal/lazyregexp"
	"github.com/msb-project/msb/internal/owned"
)

// The directories and files of caches under $MSB_HOME. A generation is a disk that nobody writes to any more, with a
// directory for each key; sandboxes that start get the newest. Its lock is held, shared, by each machine that has it.
// The one that is being made is in CacheWork, whose lock is held exclusively. The newest is never removed; one without
// a disk has nothing in it.
const (
	CachesDir    = "caches"
	CacheWork    = "work"
	CacheDisk    = VolumeDisk
	CacheFile    = "cache.json"
	CacheVersion = 1
)

// Errors about caches.
var (
	// ErrCache means that no tool of that name has a cache here, or that the
	// sandbox doesn't use it.
	ErrCache = errors.New("no such cache")
	// ErrCacheBusy means that the caches are being changed.
	ErrCacheBusy = errors.New("another command changes the caches")
)

var (
	generationForm = lazyregexp.New(`^g[0-9]{8}$`)
	cacheFile      = lazyregexp.New(`^(lock|disk\.ext4|cache\.json|\.cache\.json[0-9]+)$`) // the last is one that renameio is writing
)

// Forms of a generation's directory, and of the directory of all.
var (
	CacheForm  = owned.Files(cacheFile.MatchString)
	CachesForm = owned.Dirs(func(name string) bool { return name == CacheWork || generationForm.MatchString(name) }, CacheForm)
)

// StoredCaches is what is kept of a generation beside its disk.
type StoredCaches struct {
	Version int                    `json:"version"`
	Tools   map[string]StoredCache `json:"tools"`
}

// StoredCache is one tool's.
type StoredCache struct {
	// Bytes is what the files of a tool take on the disk.
	Bytes     int64     `json:"bytes"`
	Committed time.Time `json:"committed"`
	// Sandbox is the one whose files were committed last.
	Sandbox string `json:"sandbox"`
}

// cacheTool is a tool that caches downloads: the keys of its directories, and where each is.
type cacheTool struct {
	name string
	at   func(env func(string) string) []Cache
}

// Cache is a directory of a tool's cache in the guest.
type Cache struct {
	Key string
	// Path is absolute, or begins with "~/".
	Path string
}

// cacheTools lists where each tool's documentation puts its caches by default, and by the variables that images set.
var cacheTools = []cacheTool{
	{"apk", func(func(string) string) []Cache { return []Cache{{"apk", "/etc/apk/cache"}} }},
	{"apt", func(func(string) string) []Cache { return []Cache{{"apt", "/var/cache/apt/archives"}} }},
	{"cargo", func(env func(string) string) []Cache {
		home := cmp.Or(env("CARGO_HOME"), "~/.cargo")
		return []Cache{{"cargo-git", home + "/git"}, {"cargo-registry", home + "/registry"}}
	}},
	{"go", func(env func(string) string) []Cache {
		gopath := "~/go"
		if first, _, _ := strings.Cut(env("GOPATH"), ":"); first != "" {
			gopath = first
		}
		return []Cache{
			{"go-build", cmp.Or(env("GOCACHE"), xdgCache(env)+"/go-build")},
			{"go-mod", cmp.Or(env("GOMODCACHE"), gopath+"/pkg/mod")},
		}
	}},
	{"maven", func(func(string) string) []Cache { return []Cache{{"maven", "~/.m2/repository"}} }},
	{"npm", func(env func(string) string) []Cache {
		return []Cache{{"npm", cmp.Or(env("npm_config_cache"), env("NPM_CONFIG_CACHE"), "~/.npm")}}
	}},
	{"pip", func(env func(string) string) []Cache {
		return []Cache{{"pip", cmp.Or(env("PIP_CACHE_DIR"), xdgCache(env)+"/pip")}}
	}},
}

func xdgCache(env func(string) string) string { return cmp.Or(env("XDG_CACHE_HOME"), "~/.cache") }

// CacheTools are the names of the tools, in order.
func CacheTools() []string {
	names := make([]string, 0, len(cacheTools))
	for _, t := range cacheTools {
		names = append(names, t.name)
	}
	return names
}

// CachesOf are the directories of a tool for processes with that environment, KEY=value; ErrCache if there is no such
// tool. A variable whose value is no absolute path is ignored.
func CachesOf(tool string, environ []string) ([]Cache, error) {
	i := slices.IndexFunc(cacheTools, func(t cacheTool) bool { return t.name == tool })
	if i < 0 {
		return nil, fmt.Errorf("%w: %.80q; there are %s", ErrCache, tool, strings.Join(CacheTools(), ", "))
	}
	env := func(name string) (value string) {
		for _, e := range environ {
			if v, ok := strings.CutPrefix(e, name+"="); ok {
				value = v
			}
		}
		if first, _, _ := strings.Cut(value, ":"); !path.IsAbs(first) {
			return ""
		}
		return value
	}
	all := cacheTools[i].at(env)
	for j := range all {
		if rest, below := strings.CutPrefix(all[j].Path, "~/"); below && env("HOME") != "" {
			all[j].Path = env("HOME") + "/" + rest
		}
	}
	return all, nil
}

// CachesPath is a file of the caches'.
func CachesPath(home string, file ...string) string {
	return filepath.Join(append([]string{home, CachesDir}, file...)...)
}

// Generations are the names of the generations, the newest first.
func Generations(home string) (names []string, err error) {
	entries, err := os.ReadDir(CachesPath(home)) // sorted
	if err != nil {
		return nil, UnlessGone(err)
	}
	for _, e := range slices.Backward(entries) {
		if e.IsDir() && generationForm.MatchString(e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// NextGeneration is the name of the generation after newest, which may be "".
func NextGeneration(newest string) string {
	n, _ := strconv.Atoi(strings.TrimPrefix(newest, "g")) // of digits alone
	return fmt.Sprintf("g%08d", n+1)
}

// AttachCaches takes a shared lock on the newest generation for a machine, and returns its directory. Without a
// generation both are zero.
func AttachCaches(home string) (dir string, lock *os.File, err error) {
	for {
		names, err := Generations(home)
		if len(names) == 0 || err != nil {
			return "", nil, err
		}
		dir := CachesPath(home, names[0])
		lock, err := lockGeneration(dir, unix.LOCK_SH)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EWOULDBLOCK) {
			if again, e := Generations(home); e == nil && !slices.Equal(names, again) {
				continue // it was removed, and a newer one is there
			}
		}
		return dir, lock, err
	}
}

// LockGeneration takes the exclusive lock of a generation: unix.EWOULDBLOCK while a machine holds it.
func LockGeneration(home, name string) (*os.File, error) {
	return lockGeneration(CachesPath(home, name), unix.LOCK_EX)
}

func lockGeneration(path string, how int) (*os.File, error) {
	dir, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }()
	lock, err := lockAs(dir, 0, how)
	if err != nil {
		return nil, err
	}
	if err := CheckLock(lock, filepath.Join(path, LockFile)); err != nil { // a prune removed it, and a machine would have no disk
		return nil, errors.Join(err, lock.Close())
	}
	return lock, nil
}

// ShareLock turns an exclusive lock into a shared one.
func ShareLock(lock *os.File) error { return unix.Flock(int(lock.Fd()), unix.LOCK_SH|unix.LOCK_NB) }

// ReadCaches reads what is kept of a generation.
func ReadCaches(dir string) (*StoredCaches, error) {
	c := new(StoredCaches)
	if err := ReadJSON(dir, CacheFile, c); err != nil {
		return nil, fmt.Errorf("%w: the caches in %s: %w; `msb cache rm --all` removes them", ErrState, dir, err)
	}
	if c.Version != CacheVersion {
		return nil, fmt.Errorf("%w: the caches in %s are of another msb; `msb cache rm --all` removes them", ErrState, dir)
	}
	if c.Tools == nil {
		c.Tools = map[string]StoredCache{}
	}
	return c, nil
}
