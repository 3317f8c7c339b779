package sandbox

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
)

// PruneKind is what a prune removes.
type PruneKind string

// The kinds. Their values are stable: scripts see them in JSON.
const (
	PruneKept    PruneKind = "kept"    // of a sandbox without a name: Config.Keep
	PruneStopped PruneKind = "sandbox" // one with a name
	PruneImage   PruneKind = "image"   // a disk that no name and no sandbox needs
	PruneCache   PruneKind = "cache"   // what only sandboxes that have stopped had of the caches
)

// Pruned is one thing that was removed, or would be.
type Pruned struct {
	Kind PruneKind `json:"kind"`
	// Name is an id, a sandbox's name, an image's digest, or the number of what was committed.
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}

// PruneOptions say what Prune removes.
type PruneOptions struct {
	// DryRun removes nothing.
	DryRun bool
	// Stopped removes the sandboxes with a name that don't run, too.
	Stopped bool
}

// Prune removes what Config.Keep left and unused images, and returns what it removed. It continues after an error.
func (h *Home) Prune(ctx context.Context, o PruneOptions) (pruned []Pruned, err error) {
	var errs []error
	remove := func(p Pruned, do func() error) {
		if !o.DryRun {
			if err := do(); err != nil {
				errs = append(errs, err)
				return
			}
		}
		pruned = append(pruned, p)
	}
	kept, err := h.KeptRuns().List()
	if err != nil {
		return nil, Fail(err)
	}
	for _, k := range kept {
		remove(Pruned{PruneKept, k.ID, bytesBelow(k.Dir)}, func() error { return h.KeptRuns().Remove(k.ID) })
	}
	all, err := h.List()
	if err != nil {
		return pruned, Fail(errors.Join(append(errs, err)...))
	}
	var needed []string
	for i := range all {
		s := &all[i]
		if o.Stopped && !s.Running && s.Problem == "" {
			before := len(pruned)
			remove(Pruned{PruneStopped, s.Name, bytesBelow(s.Dir)}, func() error { return h.Remove(ctx, s.Name) })
			if len(pruned) > before {
				continue
			}
		}
		needed = append(needed, s.Digest)
	}
	ofSnapshots, err := h.Snapshots().images()
	if err != nil {
		return pruned, Fail(errors.Join(append(errs, err)...))
	}
	images, err := pruneImages(h, o.DryRun, append(needed, ofSnapshots...))
	return append(pruned, images...), Fail(errors.Join(append(errs, err)...))
}

// PruneImages removes the disks that no name, no sandbox and no snapshot needs, and tells which.
func PruneImages(h *Home, dry bool) ([]Pruned, error) {
	needed, err := h.NeededImages()
	if err != nil {
		return nil, Fail(err)
	}
	pruned, err := pruneImages(h, dry, needed)
	return pruned, Fail(err)
}

func pruneImages(h *Home, dry bool, needed []string) ([]Pruned, error) {
	store, err := Store(h)
	if err != nil {
		return nil, err
	}
	sizes, err := store.Unneeded(needed...)
	if err == nil && !dry {
		_, err = store.Prune(needed...)
	}
	if err != nil {
		return nil, err
	}
	images := make([]Pruned, 0, len(sizes))
	for digest, size := range sizes {
		images = append(images, Pruned{PruneImage, digest, size})
	}
	slices.SortFunc(images, func(a, b Pruned) int { return cmp.Compare(a.Name, b.Name) })
	return images, nil
}

// bytesBelow is what the files in a directory take on the host.
func bytesBelow(dir string) (sum int64) {
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error { // what can't be read has no size
		if err == nil && d.Type().IsRegular() {
			sum += allocated(path)
		}
		return nil
	})
	return sum
}
