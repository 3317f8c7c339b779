package image

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// configName is the configuration of an image as its maker wrote it, beside the disk.
const configName = "config.json"

// Layer is one layer of an image. The cache keeps the disk that was made of all of them, and no layer.
type Layer struct {
	// Digest is of the layer as it was fetched, "" of an archive's; DiffID is of its tar stream.
	Digest string `json:"digest,omitempty"`
	DiffID string `json:"diff_id,omitempty"`
	// SizeBytes is of the layer as it was fetched; -1 is unknown.
	SizeBytes int64 `json:"size_bytes"`
}

// HistoryEntry is a step in which an image was made, in the words of its maker.
type HistoryEntry struct {
	Created    time.Time `json:"created,omitzero"`
	CreatedBy  string    `json:"created_by"`
	Comment    string    `json:"comment,omitempty"`
	EmptyLayer bool      `json:"empty_layer,omitempty"`
}

// Details are what the cache knows about an image.
type Details struct {
	Image
	// Refs are all references that mean it.
	Refs []string
	// Layers are lowest first; nil of an image without layers (dir:, builtin), and of a disk that an older msb made.
	Layers []Layer
	// ConfigFile is the OCI image configuration as its maker wrote it; nil as Layers is.
	ConfigFile json.RawMessage
}

// Inspect tells about an image in the cache, by reference, digest or the beginning of a digest. ErrNotCached when there
// is none, ErrReference when several digests begin so.
func (s *Store) Inspect(ref string) (*Details, error) {
	all, err := s.List()
	if err != nil {
		return nil, err
	}
	names, digests := refNames(ref), map[string]bool{}
	for i := range all {
		if slices.Contains(names, all[i].Ref) && all[i].Ref != "" {
			digests = map[string]bool{all[i].Digest: true} // a name wins
			break
		}
		if beginsDigest(all[i].Digest, ref) {
			digests[all[i].Digest] = true
		}
	}
	if len(digests) == 0 {
		return nil, fmt.Errorf("%w: %q", ErrNotCached, ref)
	}
	if len(digests) > 1 {
		return nil, fmt.Errorf("%w: %d images have a digest that begins with %q; write more of it", ErrReference, len(digests), ref)
	}
	d := new(Details)
	for i := range all {
		if !digests[all[i].Digest] {
			continue
		}
		d.Image = all[i]
		if all[i].Ref != "" {
			d.Refs = append(d.Refs, all[i].Ref)
		}
	}
	return d, s.addDetails(d)
}

// beginsDigest reports whether what was written means a digest, with the algorithm or without, in full or shortened.
func beginsDigest(digest, written string) bool {
	const least = 4 // digits: one or two are a slip
	_, hex, _ := strings.Cut(digest, ":")
	for _, of := range []string{digest, hex} {
		if strings.HasPrefix(of, written) && len(written)-(len(of)-len(hex)) >= least {
			return true
		}
	}
	return false
}

// addDetails reads what lies beside the disk.
func (s *Store) addDetails(d *Details) error {
	dig, err := parseDigest(d.Digest)
	if err != nil {
		return err
	}
	var m diskMeta
	if err := readJSON(filepath.Join(s.diskDir(dig), metaFile), &m); err != nil {
		return fmt.Errorf("read the image's record: %w", err)
	}
	d.Layers = m.Layers
	path := filepath.Join(s.diskDir(dig), configName)
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && (!info.Mode().IsRegular() || info.Size() > maxConfigBytes) {
		err = fmt.Errorf("%s is no file, or has %d bytes", path, info.Size())
	}
	if err == nil {
		d.ConfigFile, err = os.ReadFile(path)
	}
	if err == nil {
		_, err = parseConfigFile(d.ConfigFile)
	}
	if err != nil {
		return fmt.Errorf("read the image's configuration: %w", err)
	}
	return nil
}

// History are the steps in which the image was made, the oldest first; none if its configuration names none.
func (d *Details) History() ([]HistoryEntry, error) {
	if d.ConfigFile == nil {
		return nil, nil
	}
	var f v1.ConfigFile
	if err := json.Unmarshal(d.ConfigFile, &f); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	steps := make([]HistoryEntry, 0, len(f.History))
	for _, h := range f.History {
		steps = append(steps, HistoryEntry{Created: h.Created.Time, CreatedBy: h.CreatedBy, Comment: h.Comment, EmptyLayer: h.EmptyLayer})
	}
	return steps, nil
}

// record is what of the layers stays with the disk.
func (l layerSource) record() Layer {
	r := Layer{SizeBytes: l.size}
	if l.digest != nil {
		r.Digest = l.digest.String()
	}
	if l.diffID != nil {
		r.DiffID = l.diffID.String()
	}
	return r
}

// writeConfig puts the image's own configuration beside a finished disk.
func (st *staging) writeConfig(raw []byte) error {
	if raw == nil {
		return nil
	}
	return writeFileSync(filepath.Join(st.dir, configName), raw)
}
