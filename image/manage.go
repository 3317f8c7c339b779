package image

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
)

// List returns what the cache holds, one Image for each reference, in the order
// of references; disks that no reference names come last, with Ref "".
func (s *Store) List() ([]Image, error) {
	records, err := s.refRecords()
	if err != nil {
		return nil, err
	}
	disks, err := s.diskDigests()
	if err != nil {
		return nil, err
	}
	var out []Image
	for _, rec := range records {
		d, err := parseDigest(rec.Digest)
		if err != nil {
			continue
		}
		if img := s.loadDisk(d); img != nil {
			img.Ref = rec.Ref
			out = append(out, *img)
			delete(disks, d)
		}
	}
	for d := range disks {
		if img := s.loadDisk(d); img != nil {
			out = append(out, *img)
		}
	}
	slices.SortFunc(out, func(a, b Image) int {
		if (a.Ref == "") != (b.Ref == "") {
			return strings.Compare(b.Ref, a.Ref)
		}
		return strings.Compare(a.Ref+a.Digest, b.Ref+b.Digest)
	})
	return out, nil
}

// Remove forgets ref, a reference or the digest of a disk, and deletes its disk
// unless another reference names it or its digest is among needed. ErrNotCached
// when there is none. A guest that runs from the disk keeps it until it ends.
func (s *Store) Remove(ref string, needed ...string) error {
	records, err := s.refRecords()
	if err != nil {
		return err
	}
	names := refNames(ref)
	digests := make(map[string]bool)
	for path, rec := range records {
		if slices.Contains(names, rec.Ref) || rec.Digest == ref {
			if err := removeIfThere(path); err != nil {
				return err
			}
			digests[rec.Digest] = true
			delete(records, path)
		}
	}
	if d, err := parseDigest(ref); err == nil {
		if _, err := os.Stat(s.diskDir(d)); err == nil {
			digests[ref] = true
		}
	}
	if len(digests) == 0 {
		return fmt.Errorf("%w: %q", ErrNotCached, ref)
	}
	for _, rec := range records {
		delete(digests, rec.Digest)
	}
	for _, digest := range needed {
		delete(digests, digest)
	}
	for text := range digests {
		if d, err := parseDigest(text); err == nil {
			if err := s.dropLocked(d); err != nil {
				return err
			}
		}
	}
	return nil
}

// refNames are the keys under which a reference may be remembered.
func refNames(ref string) []string {
	names := []string{ref}
	if r, err := name.ParseReference(ref); err == nil {
		names = append(names, r.Name())
	}
	return names
}

// Unneeded returns the disks that Prune deletes, by digest, with the bytes that each takes on the host.
func (s *Store) Unneeded(needed ...string) (map[string]int64, error) {
	disks, err := s.unneeded(needed)
	if err != nil {
		return nil, err
	}
	sizes := make(map[string]int64, len(disks))
	for d := range disks {
		sizes[d.String()] = s.diskBytes(d)
	}
	return sizes, nil
}

// diskBytes is what a disk takes on the host.
func (s *Store) diskBytes(d digest) int64 {
	st, err := os.Stat(filepath.Join(s.diskDir(d), diskFile))
	if err != nil {
		return 0
	}
	return allocatedBytes(st)
}

func (s *Store) unneeded(needed []string) (map[digest]bool, error) {
	disks, err := s.diskDigests()
	if err != nil {
		return nil, err
	}
	records, err := s.refRecords()
	if err != nil {
		return nil, err
	}
	for _, rec := range records {
		if d, err := parseDigest(rec.Digest); err == nil && s.loadDisk(d) != nil {
			delete(disks, d)
		}
	}
	for _, text := range needed {
		if d, err := parseDigest(text); err == nil && s.loadDisk(d) != nil {
			delete(disks, d)
		}
	}
	return disks, nil
}

// Prune deletes every disk that can't be used, or that no reference names and
// whose digest is not among needed, and returns the bytes freed.
func (s *Store) Prune(needed ...string) (int64, error) {
	if err := s.cleanStaging(); err != nil {
		return 0, err
	}
	disks, err := s.unneeded(needed)
	if err != nil {
		return 0, err
	}
	var freed int64
	for d := range disks {
		freed += s.diskBytes(d)
		if err := s.dropLocked(d); err != nil {
			return freed, err
		}
	}
	return freed, nil
}

// dropLocked leaves a disk alone that somebody is making right now.
func (s *Store) dropLocked(d digest) error {
	l, err := tryLock(s.lockPath(d))
	if l == nil || err != nil {
		return err
	}
	defer l.release()
	return s.dropDisk(d)
}

func (s *Store) diskDigests() (map[digest]bool, error) {
	dir := filepath.Join(s.dir, disksDir)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", dir, err)
	}
	out := make(map[digest]bool, len(entries))
	for _, e := range entries {
		if d, err := parseDigest(strings.Replace(e.Name(), "-", ":", 1)); err == nil {
			out[d] = true
		}
	}
	return out, nil
}
