package vmtest

import (
	"debug/elf"
	"path/filepath"
	"testing"

	"github.com/msb-project/msb/internal/vm"
)

// Libraries returns the shared libraries, and the dynamic linker, that a
// program or library needs, by their paths on this machine. A static program
// needs none.
func Libraries(t testing.TB, program string) []string {
	t.Helper()
	seen := make(map[string]bool)
	collect(t, program, seen)
	paths := make([]string, 0, len(seen))
	for path := range seen {
		paths = append(paths, path)
	}
	return paths
}

func collect(t testing.TB, file string, seen map[string]bool) {
	t.Helper()
	f, err := elf.Open(file)
	if err != nil {
		return // a script or a data file
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		name := make([]byte, p.Filesz)
		if _, err := p.ReadAt(name, 0); err != nil {
			t.Fatal(err)
		}
		seen[string(name[:len(name)-1])] = true
	}
	needed, err := f.ImportedLibraries()
	if err != nil {
		return
	}
	for _, soname := range needed {
		path, err := vm.FindLibrary(soname, vm.ErrLibkrunMissing)
		if err != nil {
			t.Fatalf("%s needs %s: %v", file, soname, err)
		}
		if path = filepath.Clean(path); !seen[path] {
			seen[path] = true
			collect(t, path, seen)
		}
	}
}
