package image

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// refRecord remembers what a reference meant.
type refRecord struct {
	Ref      string    `json:"ref"`
	Platform Platform  `json:"platform"`
	Digest   string    `json:"digest"`
	Time     time.Time `json:"time"`
	// Anonymous tells that the registry gave this answer to anybody.
	Anonymous bool `json:"anonymous,omitempty"`
}

// refPath hashes the reference: its characters never become a file name.
func (s *Store) refPath(ref string, p Platform) string {
	return filepath.Join(s.dir, refsDir, sha256Of([]byte(ref+"\x00"+p.String())).hex+".json")
}

// loadRef returns the cached image of ref, or nil; with anonymous only one that was fetched without credentials.
func (s *Store) loadRef(ref string, p Platform, anonymous bool) *Image {
	var rec refRecord
	if err := readJSON(s.refPath(ref, p), &rec); err != nil || rec.Ref != ref || anonymous && !rec.Anonymous {
		return nil
	}
	d, err := parseDigest(rec.Digest)
	if err != nil {
		return nil
	}
	img := s.loadDisk(d)
	if img != nil && anonymous && !img.anonymous {
		return nil
	}
	return img
}

func (s *Store) saveRef(ref string, p Platform, r *resolved) error {
	anonymous := r.anonymous != nil && r.anonymous()
	if cached := s.loadRef(ref, p, anonymous); cached != nil && cached.Digest == r.digest.String() {
		return nil
	}
	b, err := json.Marshal(refRecord{Ref: ref, Platform: p, Digest: r.digest.String(), Time: s.now().UTC(), Anonymous: anonymous})
	if err != nil {
		return fmt.Errorf("encode the reference: %w", err)
	}
	st, err := s.newStaging()
	if err != nil {
		return err
	}
	defer st.discard()
	tmp := filepath.Join(st.dir, "ref.json")
	if err := writeFileSync(tmp, b); err != nil {
		return fmt.Errorf("remember the reference: %w", err)
	}
	if err := os.Rename(tmp, s.refPath(ref, p)); err != nil {
		return fmt.Errorf("remember the reference: %w", err)
	}
	return nil
}

// refRecords reads all records; one that can't be read is passed over.
func (s *Store) refRecords() (map[string]refRecord, error) {
	dir := filepath.Join(s.dir, refsDir)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", dir, err)
	}
	out := make(map[string]refRecord, len(entries))
	for _, e := range entries {
		var rec refRecord
		path := filepath.Join(dir, e.Name())
		if readJSON(path, &rec) == nil {
			out[path] = rec
		}
	}
	return out, nil
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	return nil
}
