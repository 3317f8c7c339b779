package runner

import (
	"debug/elf"
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
	f := finder{dirs: vm.LibraryDirs(), granted: map[string]bool{}, seen: map[string]bool{}}
	for _, file := range files {
		f.collect(file)
	}
	if len(f.seen) == 0 {
		return nil
	}
	for _, file := range linkerFiles {
		f.grant(file)
	}
	paths := make([]string, 0, len(f.granted))
	for path := range f.granted {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	return paths
}

// finder follows what ELF files need.
type finder struct {
	dirs    []string        // of the system
	granted map[string]bool // files and links
	seen    map[string]bool // libraries, by the path that they were found by
}

// collect follows one file's needs.
func (f *finder) collect(file string) {
	lib, err := elf.Open(file)
	if err != nil {
		return // a script or a data file
	}
	defer lib.Close()
	needed, err := lib.ImportedLibraries()
	if err != nil {
		return
	}
	if linker := interpreter(lib); linker != "" {
		needed = slices.Concat([]string{linker}, dlopened, needed)
	}
	dirs := slices.Concat(runPaths(lib, file), f.dirs)
	for _, name := range needed {
		f.find(lib, dirs, name)
	}
}

// interpreter is the dynamic linker that a program names.
func interpreter(lib *elf.File) string {
	for _, p := range lib.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		name := make([]byte, p.Filesz)
		if _, err := p.ReadAt(name, 0); err != nil {
			return ""
		}
		return strings.TrimRight(string(name), "\x00")
	}
	return ""
}

// find looks for a library as the dynamic linker does for the file that needs
// it, in every directory, since the linker may take any of several.
func (f *finder) find(by *elf.File, dirs []string, name string) {
	if strings.Contains(name, "/") {
		f.found(name)
		return
	}
	for _, dir := range dirs {
		path := filepath.Join(dir, name)
		if !f.seen[path] && sameKind(by, path) {
			f.found(path)
		}
	}
}

// found grants a library and follows its needs.
func (f *finder) found(path string) {
	if f.seen[path] {
		return
	}
	f.seen[path] = true
	f.grant(path)
	f.collect(path)
}

// maxLinks bounds the links on the way to one file, as the kernel does.
const maxLinks = 40

// grant adds a file by its real path, and every link on the way to it.
func (f *finder) grant(path string) {
	for range maxLinks {
		link := firstLink(path)
		if link == "" {
			if _, err := os.Stat(path); err == nil {
				f.granted[path] = true
			}
			return
		}
		target, err := os.Readlink(link)
		if err != nil {
			return
		}
		f.granted[link] = true
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(link), target)
		}
		path = filepath.Join(target, strings.TrimPrefix(path, link))
	}
}

// firstLink is the shortest beginning of an absolute path that is a link.
func firstLink(path string) string {
	for i := 1; i <= len(path); i++ {
		if i < len(path) && path[i] != '/' {
			continue
		}
		if info, err := os.Lstat(path[:i]); err == nil && info.Mode()&os.ModeSymlink != 0 {
			return path[:i]
		}
	}
	return ""
}

// sameKind tells whether path is a library for the same machine: beside those
// of 64 bits there may be others of the same name.
func sameKind(as *elf.File, path string) bool {
	lib, err := elf.Open(path)
	if err != nil {
		return false
	}
	defer lib.Close()
	return lib.Class == as.Class && lib.Machine == as.Machine
}

// runPaths are a file's own directories to look in first.
func runPaths(lib *elf.File, file string) []string {
	var dirs []string
	for _, tag := range []elf.DynTag{elf.DT_RPATH, elf.DT_RUNPATH} {
		lists, err := lib.DynString(tag)
		if err != nil {
			continue
		}
		for _, list := range lists {
			for _, dir := range filepath.SplitList(list) {
				origin := filepath.Dir(file)
				dir = strings.NewReplacer("${ORIGIN}", origin, "$ORIGIN", origin).Replace(dir)
				if filepath.IsAbs(dir) {
					dirs = append(dirs, filepath.Clean(dir))
				}
			}
		}
	}
	return dirs
}
