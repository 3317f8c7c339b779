package image

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/msb-project/msb/image/ext4disk"
	"github.com/msb-project/msb/internal/owned"
)

const (
	diskFile = "disk.ext4"
	metaFile = "meta.json"
	// diskFormat changes when disks are made in another way; older ones are made again.
	diskFormat = 1
	// maxMetaBytes bounds what is read back. Bytes.
	maxMetaBytes = 8 << 20
)

// diskMeta is the marker that a disk is whole: it is written after the disk was
// synced, in the same directory, before the rename.
type diskMeta struct {
	Format    int       `json:"format"`
	Digest    string    `json:"digest"`
	Config    Config    `json:"config"`
	Platform  Platform  `json:"platform"`
	SizeBytes int64     `json:"sizeBytes"`
	Created   time.Time `json:"created"`
	Layers    []Layer   `json:"layers,omitempty"`
	// Anonymous tells that all of it was fetched without credentials.
	Anonymous bool `json:"anonymous,omitempty"`
}

func (s *Store) diskDir(d digest) string { return filepath.Join(s.dir, disksDir, d.fileName()) }

// loadDisk returns nil when the cache has no disk for d that can be used: missing,
// of another format, cut short, or without its marker.
func (s *Store) loadDisk(d digest) *Image {
	dir := s.diskDir(d)
	var m diskMeta
	if err := readJSON(filepath.Join(dir, metaFile), &m); err != nil {
		return nil
	}
	if m.Format != diskFormat || m.Digest != d.String() || m.Config.validate() != nil {
		return nil
	}
	path := filepath.Join(dir, diskFile)
	if ext4disk.Check(path, m.SizeBytes) != nil {
		return nil
	}
	return &Image{
		Digest: m.Digest, DiskPath: path, Config: m.Config, SizeBytes: m.SizeBytes,
		Platform: m.Platform, Cached: true, Created: m.Created, anonymous: m.Anonymous,
	}
}

// writeMeta puts the marker beside a finished disk.
func (st *staging) writeMeta(m diskMeta) error {
	b, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode %s: %w", metaFile, err)
	}
	return writeFileSync(filepath.Join(st.dir, metaFile), b)
}

// dropDisk removes a disk's directory in a way that never shows half of it: it is
// moved away first. A guest that has it open keeps it until it closes it.
func (s *Store) dropDisk(d digest) error {
	if err := s.checkDisk(d); err != nil {
		return unlessMissing(err)
	}
	st, err := s.newStaging()
	if err != nil {
		return err
	}
	defer st.discard()
	err = os.Rename(s.diskDir(d), filepath.Join(st.dir, droppedDir))
	if err := unlessMissing(err); err != nil {
		return fmt.Errorf("remove a disk: %w", err)
	}
	return nil
}

// checkDisk refuses to remove a disk's directory that holds files which the store did not make.
func (s *Store) checkDisk(d digest) error {
	disks, err := os.Open(filepath.Join(s.dir, disksDir))
	if err != nil {
		return err
	}
	defer func() { _ = disks.Close() }()
	dir, err := owned.Open(disks, d.fileName())
	if err != nil {
		return err
	}
	return errors.Join(owned.Check(dir, diskForm), dir.Close())
}

func unlessMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func readJSON(path string, v any) error {
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() || st.Size() > maxMetaBytes {
		return fmt.Errorf("%s is no file, or has %d bytes", path, st.Size())
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}
