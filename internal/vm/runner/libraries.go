package runner

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/msb-project/msb/internal/vm"
)

// linkerFiles are what the dynamic linker reads before any library.
var linkerFiles = []string{"/etc/ld.so.cache"}

// dlopened are libraries that C's own library loads by itself: to end a thread
// and to unwind the stack of one that ends.
var dlopened = []string{"libgcc_s.so.1"}

// Libraries are the files that dynamically linked programs and libraries load:
// the dynamic linker, what their DT_NEEDED entries name, and what those need,
// by their real paths, and the links on the way there. A static program needs
// none. One that is not found is left out; the dynamic linker will name it.
func Libraries(files ...string) []string {
	f := finder{
		dirs: vm.LibraryDirs(), granted: map[string]bool{}, tried: map[string]bool{}, followed: map[[2]string]bool{},
		links: map[string]string{},
	}
	for _, file := range files {
		f.collect(file)
	}
	if len(f.followed) == 0 {
		return nil
	}
	for _, file := range linkerFiles {
		f.grant(f.resolve(file))
	}
	paths := make([]string, 0, len(f.granted))
	for path := range f.granted {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	return paths
}

// finder follows what ELF files need, all of them for the same machine.
type finder struct {
	dirs     []string           // of the system
	granted  map[string]bool    // files and links
	tried    map[string]bool    // libraries, by the path at which they were looked for
	followed map[[2]string]bool // libraries, by their directory's real path and their own: /lib is often a link to /usr/lib
	links    map[string]string  // what paths link to, "" for what is no link
}

// collect follows one file's needs.
func (f *finder) collect(file string) {
	lib, err := readNeeds(file)
	if err != nil {
		return // a script or a data file
	}
	f.follow(lib, file)
}

// follow follows what a file needs.
func (f *finder) follow(lib *needs, file string) {
	names := lib.names
	if lib.linker != "" {
		names = slices.Concat([]string{lib.linker}, dlopened, names)
	}
	dirs := slices.Concat(runPaths(lib, file), f.dirs)
	for _, name := range names {
		f.find(lib, dirs, name)
	}
}

// find looks for a library as the dynamic linker does for the file that needs
// it, in every directory, since the linker may take any of several.
func (f *finder) find(by *needs, dirs []string, name string) {
	if strings.Contains(name, "/") {
		f.found(by, name)
		return
	}
	for _, dir := range dirs {
		f.found(by, filepath.Join(dir, name))
	}
}

// found grants a library, with every link on the way to it, and follows its needs, if there is one at path and it is for
// the same machine as by: beside those of 64 bits there may be others of the same name.
func (f *finder) found(by *needs, path string) {
	if f.tried[path] {
		return
	}
	f.tried[path] = true
	real, links := f.resolve(path)
	if real == "" {
		return
	}
	dir, _ := f.resolve(filepath.Dir(path))
	if key := [2]string{dir, real}; !f.followed[key] {
		lib, err := readNeeds(real)
		if err != nil || lib.machine != by.machine {
			return
		}
		f.followed[key] = true
		f.follow(lib, path)
	}
	f.grant(real, links)
}

// grant adds what resolve found.
func (f *finder) grant(real string, links []string) {
	if real == "" {
		return
	}
	f.granted[real] = true
	for _, link := range links {
		f.granted[link] = true
	}
}

// maxLinks bounds the links on the way to one file, as the kernel does.
const maxLinks = 40

// resolve returns an absolute path's real path, "" where there is none, and every link on the way there.
func (f *finder) resolve(path string) (real string, links []string) {
	for range maxLinks {
		link, err := f.firstLink(path)
		if err != nil {
			return "", nil
		}
		if link == "" {
			return path, links
		}
		links = append(links, link)
		target := f.links[link]
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(link), target)
		}
		path = filepath.Join(target, strings.TrimPrefix(path, link))
	}
	return "", nil
}

// firstLink is the shortest beginning of an absolute path that is a link. It fails where there is nothing at path.
func (f *finder) firstLink(path string) (string, error) {
	for i := 1; i <= len(path); i++ {
		if i < len(path) && path[i] != '/' {
			continue
		}
		target, known := f.links[path[:i]]
		if !known {
			info, err := os.Lstat(path[:i])
			if err != nil {
				return "", err
			}
			if info.Mode()&os.ModeSymlink != 0 {
				if target, err = os.Readlink(path[:i]); err != nil {
					return "", err
				}
			}
			f.links[path[:i]] = target
		}
		if target != "" {
			return path[:i], nil
		}
	}
	return "", nil
}

// runPaths are a file's own directories to look in first.
func runPaths(lib *needs, file string) []string {
	var dirs []string
	for _, list := range lib.runPaths {
		for _, dir := range filepath.SplitList(list) {
			origin := filepath.Dir(file)
			dir = strings.NewReplacer("${ORIGIN}", origin, "$ORIGIN", origin).Replace(dir)
			if filepath.IsAbs(dir) {
				dirs = append(dirs, filepath.Clean(dir))
			}
		}
	}
	return dirs
}
