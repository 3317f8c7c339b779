package sandbox

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/msb-project/msb/sandbox/internal/state"
)

func keptDir(h *Home, id string) string { return filepath.Join(h.dir, state.KeptDir, id) }

// Kept is what Config.Keep left of a sandbox: its logs and its disk, if it had one.
type Kept struct {
	ID    string
	Dir   string
	Ended time.Time
}

// KeptRuns are what Config.Keep left in a state directory.
type KeptRuns struct{ home *Home }

// KeptRuns are h's.
func (h *Home) KeptRuns() KeptRuns { return KeptRuns{h} }

// List returns them in the order in which the sandboxes ended.
func (k KeptRuns) List() ([]Kept, error) {
	entries, err := os.ReadDir(filepath.Join(k.home.dir, state.KeptDir))
	if err != nil {
		return nil, err
	}
	var all []Kept
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !e.IsDir() || !runName.MatchString(e.Name()) {
			continue // removed just now, or not msb's
		}
		all = append(all, Kept{e.Name(), keptDir(k.home, e.Name()), info.ModTime()})
	}
	slices.SortFunc(all, func(a, b Kept) int { return a.Ended.Compare(b.Ended) })
	return all, nil
}

// Remove removes what is left of the sandbox of that id; ErrNoSandbox if there is nothing.
func (k KeptRuns) Remove(id string) error {
	if _, err := os.Lstat(keptDir(k.home, id)); !runName.MatchString(id) || errors.Is(err, fs.ErrNotExist) {
		return Fail(missing(id, fs.ErrNotExist))
	}
	return Fail(state.RemoveOwn(keptDir(k.home, id), state.RunForm))
}
