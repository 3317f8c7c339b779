package grants

import (
	"os"
	"path/filepath"
	"strings"
)

// maxLinks bounds the links on the way to a file, as in the kernel (MAXSYMLINKS).
const maxLinks = 40

// Way returns where the kernel looks when it opens path: each directory and link on the way, by a path whose parent is
// real, and the file last. Whoever can change one of them decides what is opened, also where the file itself is out of
// reach. It ends with the first that isn't there, which may be made later.
func Way(path string) []string {
	way := []string{"/"}
	at, rest := "/", strings.Split(lexicalAbs(path), "/")
	for links := 0; len(rest) > 0 && links <= maxLinks; {
		name := rest[0]
		rest = rest[1:]
		switch name {
		case "", ".":
			continue
		case "..": // filepath.Clean would go above a link, and not above its target
			at = filepath.Dir(at)
			continue
		}
		at = filepath.Join(at, name)
		way = append(way, at)
		info, err := os.Lstat(at)
		if err != nil {
			break
		}
		if info.Mode()&os.ModeSymlink == 0 {
			continue
		}
		links++
		target, err := os.Readlink(at)
		if err != nil {
			break
		}
		if at = filepath.Dir(at); filepath.IsAbs(target) {
			at = "/"
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return way
}

// lexicalAbs makes a path absolute and leaves ".." in it.
func lexicalAbs(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	dir, err := os.Getwd()
	if err != nil {
		return path
	}
	return dir + "/" + path
}
