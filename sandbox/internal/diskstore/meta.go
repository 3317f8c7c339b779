package diskstore

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/msb-project/msb/sandbox/internal/state"
)

// metaVersion is that of snapshot.json.
const metaVersion = 1

// Meta is what there is to know of a snapshot beside the disk's chunks.
type Meta struct {
	Version int       `json:"version"`
	Created time.Time `json:"created"`
	// Labels are the user's.
	Labels map[string]string `json:"labels,omitempty"`
	// Disk is the digest of the list.
	Disk string `json:"disk"`
	// Parent is the snapshot that the sandbox was at before.
	Parent *Origin `json:"parent,omitempty"`
	// Running tells that it was taken while the sandbox ran.
	Running bool `json:"running,omitempty"`
	// Imported tells that it came in an archive: Config has nothing in it then that takes anything from this machine.
	Imported bool `json:"imported,omitempty"`
	// Config is the sandbox as it was. It holds no secret: a policy names their sources.
	Config *state.Stored `json:"config"`
	// Memory is the size of the file with the machine's memory, of the same instant as the disk; 0 for none.
	Memory int64 `json:"memory,omitempty"`
	// CA are the certificates, in PEM form, that the disk's trust stores may have of sandboxes.
	CA string `json:"ca,omitempty"`
}

// Origin names a snapshot.
type Origin struct {
	Name string `json:"name"`
	Disk string `json:"disk"`
}

// Names are those of the snapshots, in order.
func (s *Store) Names() ([]string, error) {
	entries, err := os.ReadDir(s.path(namesDir)) // sorted
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		if e.IsDir() && state.CheckName(e.Name()) == nil {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// Load reads what a snapshot is. One that doesn't agree with itself is state.ErrSnapshotDamaged.
func (s *Store) Load(name string) (*Meta, *List, error) {
	m, err := s.LoadMeta(name)
	if err != nil {
		return nil, nil, err
	}
	b, err := state.ReadOwn(s.path(namesDir, name, listFile))
	if errors.Is(err, fs.ErrNotExist) {
		if _, e := os.Lstat(s.path(namesDir, name)); errors.Is(e, fs.ErrNotExist) {
			return nil, nil, missing(name) // removed just now
		}
	}
	if err == nil && digestOf(b) != m.Disk {
		err = errors.New("the list of its chunks has another digest")
	}
	var list *List
	if err == nil {
		list, err = parseList(b)
	}
	if err != nil {
		return nil, nil, damaged(name, err)
	}
	return m, list, nil
}

// LoadMeta is Load without the list.
func (s *Store) LoadMeta(name string) (*Meta, error) {
	if err := state.CheckSnapshotName(name); err != nil {
		return nil, err
	}
	if info, err := os.Lstat(s.path(namesDir, name)); err == nil && !info.IsDir() {
		return nil, damaged(name, errors.New("it is no directory, and links are not followed"))
	}
	b, err := state.ReadOwn(s.path(namesDir, name, metaFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, missing(name)
	}
	m := new(Meta)
	if err == nil {
		dec := json.NewDecoder(bytes.NewReader(b))
		dec.DisallowUnknownFields()
		err = dec.Decode(m)
	}
	if err == nil && (m.Version != metaVersion || m.Config == nil) {
		err = fmt.Errorf("%s is of version %d, want %d", metaFile, m.Version, metaVersion)
	}
	if err != nil {
		return nil, damaged(name, err)
	}
	return m, nil
}

func damaged(name string, err error) error {
	return fmt.Errorf("%w: %s: %w; `msb snapshot rm %s` removes it", state.ErrSnapshotDamaged, name, err, name)
}

// writeTo writes both files of a snapshot into a new directory.
func writeTo(dir string, m *Meta, list *List) error {
	text := list.encode()
	m.Version, m.Disk = metaVersion, digestOf(text)
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	return errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, listFile), text, 0o600), os.WriteFile(filepath.Join(dir, metaFile), append(b, '\n'), 0o600))
}
