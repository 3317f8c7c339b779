package sandbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/msb-project/msb/image"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// CloneOptions say what a clone doesn't take over from its source. The zero value is fine.
type CloneOptions struct {
	// PolicyFile replaces the policy. What it takes from this machine has to be approved at the first start.
	PolicyFile string
	// Label is as in Config; the source's label is not kept.
	Label string
}

func (o CloneOptions) apply(st *state.Stored) error {
	st.Label = o.Label
	if o.PolicyFile == "" {
		return nil
	}
	p, err := LoadPolicy(o.PolicyFile)
	if err != nil {
		return err
	}
	st.PolicyFile = o.PolicyFile
	st.Policy, st.PolicyName, st.PolicyPath, st.Grants = string(policies.Encode(p)), p.File, p.Path, nil
	return absolute(&st.PolicyFile)
}

// Clone makes the sandbox to from the one called name, with a copy of its disk and its settings, and does not start it. The
// disk of a running sandbox is frozen meanwhile, for at most MaxFreeze. The clone gets an identity of its own: authority
// and placeholders now, and what lies on the disk at its first start (docs/snapshots.md). ErrExists if there is a sandbox
// to.
func (h *Home) Clone(ctx context.Context, name, to string, o CloneOptions) error {
	err := checkNew(h, to)
	if err == nil {
		err = withStill(ctx, h, name, func(src *source) error {
			st := cloneOf(src.stored, to, src.certificates())
			if err := o.apply(st); err != nil {
				return err
			}
			return makeClone(h, st, "a clone of "+name, func(dir string) error {
				return src.copy(ctx, filepath.Join(dir, state.UpperDisk))
			})
		})
	}
	return Fail(err)
}

// Clone makes the sandbox to from a snapshot, as Home.Clone does from a sandbox. For an imported snapshot, the image has to
// be in the cache.
func (ss Snapshots) Clone(ctx context.Context, snapshot, to string, o CloneOptions) error {
	return Fail(ss.clone(ctx, snapshot, to, o))
}

func (ss Snapshots) clone(ctx context.Context, snapshot, to string, o CloneOptions) error {
	if err := checkNew(ss.home, to); err != nil {
		return err
	}
	store, err := ss.store()
	if err != nil {
		return err
	}
	meta, err := store.LoadMeta(snapshot)
	if err != nil {
		return err
	}
	st := cloneOf(meta.Config, to, meta.CA)
	if err := o.apply(st); err != nil {
		return err
	}
	if meta.Imported {
		if err := adoptImage(ss.home, st); err != nil {
			return err
		}
	}
	return makeClone(ss.home, st, "snapshot "+snapshot, func(dir string) error {
		meta, err := store.WriteDisk(ctx, snapshot, filepath.Join(dir, state.UpperDisk))
		if err != nil {
			return err
		}
		return writeOrigin(dir, snapshot, meta)
	})
}

func checkNew(h *Home, name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	if _, err := os.Lstat(namedPath(h, name)); err == nil {
		return exists(name)
	}
	return nil
}

func makeClone(h *Home, st *state.Stored, from string, disk func(dir string) error) error {
	lock, err := makeWithDisk(h, st, from, disk)
	if err != nil {
		return err
	}
	return lock.Close()
}

// adoptImage finds the image under an imported disk in the cache, and takes its configuration from there. It never pulls,
// since an archive could then have any image fetched with the user's credentials.
func adoptImage(h *Home, st *state.Stored) error {
	store, err := Store(h)
	if err != nil {
		return err
	}
	all, err := store.List()
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(img image.Image) bool { return img.Digest == st.ImageDigest })
	if i < 0 {
		return fmt.Errorf("%w: the snapshot is of a sandbox of %q (%s); fetch it first: msb image pull, by a name that you trust", image.ErrNotCached, st.Image, st.ImageDigest)
	}
	st.ImageConfig = all[i].Config
	return nil
}

// cloneOf is the state of a clone of st. It has an identity of its own, and leaves out what two sandboxes can't share:
// files of records and ports of this machine.
func cloneOf(st *state.Stored, name, certificates string) *state.Stored {
	c := *st
	c.Name, c.Hostname, c.Created = name, name, time.Now().UTC().Round(0)
	c.Label, c.Labels = "", maps.Clone(st.Labels)
	c.Audit, c.AuditLabels, c.Pcap, c.PcapOptions = "", nil, "", PcapOptions{}
	c.Ports = slices.Clone(st.Ports)
	for i := range c.Ports {
		c.Ports[i].Host = 0 // any that is free
	}
	c.AutoRemove, c.Renamed, c.Ran = false, "", 0
	c.ParentPlaceholders = maps.Clone(st.ParentPlaceholders)
	for secret, placeholder := range st.Placeholders {
		if c.ParentPlaceholders == nil {
			c.ParentPlaceholders = map[string]string{}
		}
		c.ParentPlaceholders[placeholder] = secret
	}
	c.Placeholders, c.Requests = nil, nil
	c.Parent, c.ParentCreated, c.Root, c.RootCreated, c.Children = "", time.Time{}, "", time.Time{}, nil
	c.NewIdentity, c.ForgetCA = true, certificates
	return &c
}

// ParentFiles returns the files of a running clone that hold placeholders of the sandboxes from which it was cloned, among
// those written since the image. more says that there are others, or that some could not be read. The guest reads all of
// its disk, and may lie.
func (h *Home) ParentFiles(ctx context.Context, name string) (paths []string, more bool, err error) {
	st, err := loadStored(h, name)
	if err != nil || len(st.ParentPlaceholders) == 0 {
		return nil, false, Fail(err)
	}
	s, err := connectNamed(ctx, h, name)
	if err != nil {
		return nil, false, Fail(err)
	}
	paths, more, err = s.client.Find(ctx, slices.Sorted(maps.Keys(st.ParentPlaceholders)))
	return paths, more, Fail(errors.Join(err, s.Close()))
}
