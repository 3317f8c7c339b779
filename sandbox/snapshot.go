package sandbox

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/msb-project/msb/sandbox/internal/diskstore"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// Snapshot is the disk of a sandbox with a name as it was at some time, and the settings that the sandbox had. It holds
// no secret and no key. One with the memory has what the guest's processes had there.
type Snapshot struct {
	Name string `json:"name"`
	// Sandbox is the name that the sandbox had.
	Sandbox string            `json:"sandbox"`
	Created time.Time         `json:"created"`
	Labels  map[string]string `json:"labels,omitempty"`
	// Digest names what the disk holds.
	Digest string `json:"digest"`
	// Parent is the snapshot that the sandbox was at before.
	Parent string `json:"parent,omitempty"`
	// Running tells that it was taken while the sandbox ran.
	Running bool `json:"running"`
	// Imported tells that it came in an archive.
	Imported    bool   `json:"imported"`
	Image       string `json:"image"`
	ImageDigest string `json:"image_digest"`
	// Disk is the size of the disk, Data the size of its non-zero chunks. Snapshots share equal chunks.
	Disk int64 `json:"disk_bytes"`
	Data int64 `json:"data_bytes"`
	// Memory is the size of the file with the guest's memory; 0 for a snapshot of the disk alone.
	Memory int64 `json:"memory_bytes"`
	// Problem says why the snapshot can't be read; the other fields are empty then.
	Problem string `json:"problem,omitempty"`
}

// SnapshotOptions are the choices of one snapshot. The zero value is fine.
type SnapshotOptions struct {
	// Name is the snapshot's name; "" is the sandbox's with the next free number, such as web-1.
	Name string
	// Labels are the user's.
	Labels map[string]string
	// Memory takes the memory of a running sandbox with the disk, of the same instant: all of its processes. The guest stands
	// still meanwhile, for at most MaxHold. ErrNotSaved if its memory can't be saved: on libkrun, or with directories of
	// this machine, volumes or caches.
	Memory bool
}

// Snapshots are the snapshots of a state directory.
type Snapshots struct{ home *Home }

// Snapshots are h's.
func (h *Home) Snapshots() Snapshots { return Snapshots{h} }

// Create takes a snapshot of the sandbox of that name. The disk of a running sandbox is frozen meanwhile, for at most
// MaxFreeze. ErrSnapshotExists if another snapshot has the name. A kill at any time leaves the snapshot or nothing.
func (ss Snapshots) Create(ctx context.Context, name string, o SnapshotOptions) (*Snapshot, error) {
	s, err := ss.create(ctx, name, o)
	return s, Fail(err)
}

func (ss Snapshots) create(ctx context.Context, name string, o SnapshotOptions) (*Snapshot, error) {
	if o.Name != "" {
		if err := state.CheckSnapshotName(o.Name); err != nil {
			return nil, err
		}
	}
	store, err := ss.store()
	if err != nil {
		return nil, err
	}
	if _, err := store.LoadMeta(o.Name); o.Name != "" && err == nil {
		return nil, fmt.Errorf("%w: %s; `msb snapshot rm %s` removes it", ErrSnapshotExists, o.Name, o.Name)
	}
	work, err := store.Begin(ctx)
	if err != nil {
		return nil, err
	}
	snapshot, err := takeSnapshot(ctx, ss.home, store, work, name, o)
	return snapshot, errors.Join(err, work.Abort())
}

func takeSnapshot(ctx context.Context, h *Home, store *diskstore.Store, work *diskstore.Work, name string, o SnapshotOptions) (*Snapshot, error) {
	if o.Memory {
		if err := checkMemoryRoom(h, name); err != nil {
			return nil, err
		}
	}
	meta := &diskstore.Meta{Created: time.Now().UTC().Round(0), Labels: o.Labels}
	var list *diskstore.List
	err := withStill(ctx, h, name, func(src *source) (err error) {
		meta.Running, meta.Config, meta.CA = src.running(), src.stored, src.certificates()
		if meta.Parent, err = readOrigin(src.dir); err != nil {
			return err
		}
		if o.Memory && !src.running() {
			return fmt.Errorf("%w: %s doesn't run; start it, or take a snapshot of its disk alone", ErrNotSaved, name)
		}
		if o.Memory {
			list, err = src.chunks(ctx, work, func(ctx context.Context, do func(context.Context) error) error {
				return src.held(ctx, work.Name(), do)
			})
			return err
		}
		list, err = src.chunks(ctx, work, src.frozen)
		return err
	})
	if err != nil {
		return nil, err
	}
	if o.Name != "" {
		err = work.Commit(o.Name, meta, list)
	} else {
		o.Name, err = commitNext(store, work, name, meta, list)
	}
	if err != nil {
		return nil, err
	}
	_ = writeOrigin(namedPath(h, name), o.Name, meta) // of the parent alone, which nothing depends on
	return snapshotOf(o.Name, meta, list), nil
}

// commitNext gives a snapshot the sandbox's name with a number above all existing ones.
func commitNext(store *diskstore.Store, work *diskstore.Work, sandbox string, meta *diskstore.Meta, list *diskstore.List) (string, error) {
	names, err := store.Names()
	if err != nil {
		return "", err
	}
	next := 1
	for _, name := range names {
		if number, ok := strings.CutPrefix(name, sandbox+"-"); ok {
			if n, err := strconv.Atoi(number); err == nil && n < 1<<30 {
				next = max(next, n+1)
			}
		}
	}
	for ; ; next++ {
		name := sandbox + "-" + strconv.Itoa(next)
		if CheckName(name) != nil {
			return "", fmt.Errorf("%w %s: the sandbox's name is too long for a number behind it; name the snapshot", ErrSnapshotName, name)
		}
		if err := work.Commit(name, meta, list); !errors.Is(err, ErrSnapshotExists) {
			return name, err
		}
	}
}

func (ss Snapshots) store() (*diskstore.Store, error) {
	return diskstore.Open(filepath.Join(ss.home.dir, state.SnapshotsDir))
}

// sweepSnapshots removes what killed commands left.
func sweepSnapshots(h *Home) error {
	store, err := h.Snapshots().store()
	if err != nil {
		return err
	}
	return store.Sweep()
}

// List returns all snapshots, damaged ones included, by name.
func (ss Snapshots) List() ([]Snapshot, error) {
	store, err := ss.store()
	if err != nil {
		return nil, Fail(err)
	}
	names, err := store.Names()
	if err != nil {
		return nil, Fail(err)
	}
	all := make([]Snapshot, 0, len(names))
	for _, name := range names {
		meta, list, err := store.Load(name)
		switch {
		case errors.Is(err, ErrNoSnapshot): // removed just now
		case err != nil:
			all = append(all, Snapshot{Name: name, Problem: err.Error()})
		default:
			all = append(all, *snapshotOf(name, meta, list))
		}
	}
	return all, nil
}

// Inspect tells about the snapshot of that name.
func (ss Snapshots) Inspect(name string) (*Snapshot, error) {
	store, err := ss.store()
	if err != nil {
		return nil, Fail(err)
	}
	meta, list, err := store.Load(name)
	if err != nil {
		return nil, Fail(err)
	}
	return snapshotOf(name, meta, list), nil
}

// Remove removes the snapshot of that name, and the chunks that no other snapshot shares.
func (ss Snapshots) Remove(name string) error {
	store, err := ss.store()
	if err != nil {
		return Fail(err)
	}
	return Fail(store.Remove(name))
}

// DiskRange is a part of a disk, in bytes.
type DiskRange = diskstore.Range

// Diff returns the parts in which the disks of two snapshots differ, to within a MiB.
func (ss Snapshots) Diff(a, b string) ([]DiskRange, error) {
	store, err := ss.store()
	if err != nil {
		return nil, Fail(err)
	}
	_, one, err := store.Load(a)
	if err != nil {
		return nil, Fail(err)
	}
	_, two, err := store.Load(b)
	if err != nil {
		return nil, Fail(err)
	}
	return diskstore.Diff(one, two), nil
}

func snapshotOf(name string, m *diskstore.Meta, list *diskstore.List) *Snapshot {
	s := &Snapshot{
		Name: name, Sandbox: m.Config.Name, Created: m.Created, Labels: m.Labels, Digest: m.Disk, Running: m.Running, Imported: m.Imported,
		Image: m.Config.Image, ImageDigest: m.Config.ImageDigest, Disk: list.Size, Data: list.Bytes(), Memory: m.Memory,
	}
	if m.Parent != nil {
		s.Parent = m.Parent.Name
	}
	return s
}

// images are the digests of the images under the disks of snapshots.
func (ss Snapshots) images() ([]string, error) {
	store, err := ss.store()
	if err != nil {
		return nil, err
	}
	names, err := store.Names()
	if err != nil {
		return nil, err
	}
	digests := make([]string, 0, len(names))
	for _, name := range names {
		if meta, err := store.LoadMeta(name); err == nil { // one that is damaged needs no image
			digests = append(digests, meta.Config.ImageDigest)
		}
	}
	return digests, nil
}

// readOrigin is nil for a sandbox that was at no snapshot.
func readOrigin(dir string) (*diskstore.Origin, error) {
	o := new(diskstore.Origin)
	err := state.ReadJSON(dir, state.OriginFile, o)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w; remove it: it only says which snapshot the disk was at", ErrState, filepath.Join(dir, state.OriginFile), err)
	}
	return o, nil
}

func writeOrigin(dir, snapshot string, m *diskstore.Meta) error {
	return state.WriteJSON(dir, state.OriginFile, diskstore.Origin{Name: snapshot, Disk: m.Disk})
}

// certificatesOf are those in a file of PEM blocks, without the key beside them; "" if there is no file.
func certificatesOf(path string) (string, error) {
	b, err := state.ReadOwn(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	var certs strings.Builder
	for err == nil {
		var block *pem.Block
		if block, b = pem.Decode(b); block == nil {
			break
		}
		if block.Type == "CERTIFICATE" {
			err = pem.Encode(&certs, &pem.Block{Type: block.Type, Bytes: block.Bytes})
		}
	}
	return certs.String(), err
}

// Has reports whether there is a snapshot of that name, damaged or not.
func (ss Snapshots) Has(name string) bool {
	store, err := ss.store()
	if err != nil {
		return false
	}
	_, err = store.LoadMeta(name)
	return err == nil || errors.Is(err, ErrSnapshotDamaged)
}
