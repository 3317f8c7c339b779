package docs_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	// minSeeds is how many seeds a fuzz target begins with at least.
	minSeeds = 5
	// maxSeed bounds a seed in bytes: all of them are tried first.
	maxSeed = 16 << 10
)

var fuzzFunc = regexp.MustCompile(`(?m)^func (Fuzz\w+)\(\w+ \*testing\.F\)`)

// fuzzTargets are all of the module, as "directory name".
func fuzzTargets(t *testing.T) (all []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || path == filepath.Join(root, "lib")):
			return fs.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		directory, err := filepath.Rel(root, filepath.Dir(path))
		for _, m := range fuzzFunc.FindAllSubmatch(text, -1) {
			all = append(all, filepath.ToSlash(directory)+" "+string(m[1]))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	return all
}

// TestEveryFuzzTargetHasSeeds: small files under testdata, which `go test` tries each time.
func TestEveryFuzzTargetHasSeeds(t *testing.T) {
	t.Parallel()
	for _, target := range fuzzTargets(t) {
		directory, name, _ := strings.Cut(target, " ")
		seeds, err := os.ReadDir(filepath.Join(root, directory, "testdata", "fuzz", name))
		if err != nil || len(seeds) < minSeeds {
			t.Errorf("%s has %d seeds, want %d at least: %v", target, len(seeds), minSeeds, err)
		}
		for _, seed := range seeds {
			if info, err := seed.Info(); err != nil || info.Size() > maxSeed {
				t.Errorf("%s: the seed %s is larger than %d bytes: %v", target, seed.Name(), maxSeed, err)
			}
		}
	}
}

// TestMakeFuzzRunsEveryTarget: what the script doesn't find is never fuzzed.
func TestMakeFuzzRunsEveryTarget(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), filepath.Join(root, "scripts", "fuzz"), "--list").Output()
	if err != nil {
		t.Fatal(err)
	}
	listed := strings.Split(strings.TrimSpace(string(out)), "\n")
	slices.Sort(listed)
	if want := fuzzTargets(t); !slices.Equal(listed, want) {
		t.Errorf("scripts/fuzz runs %q, want %q", listed, want)
	}
}
