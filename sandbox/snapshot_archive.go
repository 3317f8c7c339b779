package sandbox

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/msb-project/msb/image"
	"github.com/msb-project/msb/internal/lazyregexp"
	"github.com/msb-project/msb/sandbox/internal/diskstore"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// Export writes the snapshot of that name to w, as one zstd archive: the disk and those settings that take nothing from
// this machine. The policy, directories, ports and files of records are not in it, variables are. A snapshot whose image is
// a file or directory of this machine can't be exported. After an error the archive is incomplete.
func (ss Snapshots) Export(ctx context.Context, name string, w io.Writer) error {
	store, err := ss.store()
	if err != nil {
		return Fail(err)
	}
	return Fail(store.Export(ctx, name, w, func(m *diskstore.Meta) (*diskstore.Manifest, error) {
		c := m.Config
		if !image.IsPortable(c.Image) {
			return nil, fmt.Errorf("%w: snapshot %s is of a sandbox of %q, which is only on this machine", image.ErrReference, name, c.Image)
		}
		return &diskstore.Manifest{
			Name: name, Sandbox: c.Name, Created: m.Created, Labels: m.Labels, Running: m.Running, Image: c.Image, ImageDigest: c.ImageDigest,
			CPUs: c.CPUs, Memory: c.Memory, NoNet: c.NoNet, HTTPProxy: c.HTTPProxy, Env: c.Env, ReadOnly: c.ReadOnly, Tmpfs: c.Tmpfs, CA: m.CA,
		}, nil
	}))
}

// Import reads an archive of Export as a snapshot of that name; "" is the archive's. Sandboxes that are cloned from it have
// the archive's settings and a policy that allows nothing. ErrSnapshotArchive, and no snapshot, if the archive isn't as
// Export writes it.
func (ss Snapshots) Import(ctx context.Context, r io.Reader, name string) (*Snapshot, error) {
	store, err := ss.store()
	if err != nil {
		return nil, Fail(err)
	}
	work, err := store.Begin(ctx)
	if err != nil {
		return nil, Fail(err)
	}
	s, err := importSnapshot(ctx, work, r, name)
	return s, Fail(errors.Join(err, work.Abort()))
}

func importSnapshot(ctx context.Context, work *diskstore.Work, r io.Reader, name string) (*Snapshot, error) {
	if name != "" {
		if err := state.CheckSnapshotName(name); err != nil {
			return nil, err
		}
	}
	m, list, err := work.Import(ctx, r)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	if name == "" {
		name = m.Name
	}
	config, err := configOfArchive(m, list)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSnapshotArchive, err)
	}
	meta := &diskstore.Meta{Created: m.Created, Labels: m.Labels, Running: m.Running, Imported: true, Config: config, CA: m.CA}
	if err := work.Commit(name, meta, list); err != nil {
		return nil, err
	}
	return snapshotOf(name, meta, list), nil
}

var imageDigest = lazyregexp.New(`^sha256:[0-9a-f]{64}$`)

// configOfArchive is the Config that an archive describes.
func configOfArchive(m *diskstore.Manifest, list *diskstore.List) (*state.Stored, error) {
	const sector = 512
	if list.Size%sector != 0 {
		return nil, fmt.Errorf("the disk has %d bytes, which are no whole sectors", list.Size)
	}
	if err := CheckName(m.Sandbox); err != nil {
		return nil, err
	}
	if !image.IsPortable(m.Image) || !imageDigest.MatchString(m.ImageDigest) {
		return nil, fmt.Errorf("its image is %.200q with digest %.100q, and no name in a registry", m.Image, m.ImageDigest)
	}
	if !onlyCertificates(m.CA) {
		return nil, errors.New("its certificates are none")
	}
	for _, e := range m.Env {
		if err := checkVariable(strings.Cut(e, "=")); err != nil {
			return nil, err
		}
	}
	cfg := Config{
		Name: m.Sandbox, Image: m.Image, PolicyImage: true, Disk: list.Size, CPUs: m.CPUs, Memory: m.Memory, NoNet: m.NoNet, HTTPProxy: m.HTTPProxy,
		Env: m.Env, ReadOnly: m.ReadOnly, Tmpfs: m.Tmpfs,
	}
	if err := cfg.fill(); err != nil {
		return nil, err
	}
	st := newStored(m.Sandbox, &cfg, &image.Image{Digest: m.ImageDigest}, &Admission{})
	st.Created = m.Created
	return st, nil
}

// onlyCertificates reports whether text is certificates in PEM form and nothing else.
func onlyCertificates(text string) bool {
	var again strings.Builder
	rest := []byte(text)
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return again.String() == text
		}
		if block.Type != "CERTIFICATE" || pem.Encode(&again, &pem.Block{Type: block.Type, Bytes: block.Bytes}) != nil {
			return false
		}
	}
}
