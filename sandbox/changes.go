package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/msb-project/msb/internal/cow"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// Change is a file whose version in the guest differs from that of this machine, in a directory with Directory.CopyOnWrite.
// ChangeVersion is one of the two versions, ChangeRefusal a reason why Apply refuses the change.
type (
	Change        = cow.Change
	ChangeVersion = cow.Version
	ChangeRefusal = cow.Refusal
)

// The values of Change.Kind.
const (
	ChangeAdded    = cow.Added
	ChangeModified = cow.Modified
	ChangeDeleted  = cow.Deleted
	ChangeMode     = cow.Mode // permissions alone
)

var (
	// ErrChangeRefused is wrapped by errors of Apply about a ChangeRefusal.
	ErrChangeRefused = cow.ErrRefused

	// ErrChanged means that a file has changed since it was compared, in the guest or on this machine.
	ErrChanged = cow.ErrChanged

	// ErrNoChanges means that a sandbox has no directory with CopyOnWrite.
	ErrNoChanges = errors.New("no directory is copied on write")
)

// ChangedDirectory holds a guest's changes to a directory of this machine. Don't trust it: the guest chose names, contents
// and links.
type ChangedDirectory struct {
	Directory
	// Changes are in the order of their paths.
	Changes []Change
	// Omitted counts files that the guest changed and whose paths are longer than 3 KiB.
	Omitted int64

	tree *cow.Tree
}

// Diff is the difference of two texts in the unified format, without names; nil for binary files and for those larger than
// 1 MiB. Apply then writes exactly the content that Diff has read, or nothing.
func (d *ChangedDirectory) Diff(ctx context.Context, c *Change) ([]byte, error) {
	b, err := d.tree.Diff(ctx, c)
	return b, Fail(err)
}

// Apply writes one change to this machine. The names in allow override the refusals of those names, but for final ones. A
// file is replaced in one rename, and only if it is still the one that was compared. The changes of ApplyOrder are applied
// in that order.
func (d *ChangedDirectory) Apply(ctx context.Context, c *Change, allow []string) error {
	return Fail(d.tree.Apply(ctx, c, func(name string) bool { return slices.Contains(allow, name) }))
}

// ApplyOrder returns the changes that the paths choose, in the order in which they can be applied. An absolute path is one
// in the guest, a relative one starts at the directory's top; a directory stands for everything in it. Without paths, it
// returns all changes. The new directories above a chosen file are chosen too.
func (d *ChangedDirectory) ApplyOrder(paths []string) []*Change {
	chosen := map[string]bool{}
	for i := range d.Changes {
		if c := &d.Changes[i]; d.chooses(c, paths) {
			chosen[c.Path] = true
			for up := path.Dir(c.Path); up != "." && c.New != nil; up = path.Dir(up) {
				chosen[up] = true
			}
		}
	}
	var all []*Change
	for i := range d.Changes {
		if c := &d.Changes[i]; chosen[c.Path] {
			all = append(all, c)
		}
	}
	cow.Order(all)
	return all
}

func (d *ChangedDirectory) chooses(c *Change, paths []string) bool {
	return len(paths) == 0 || slices.ContainsFunc(paths, func(p string) bool {
		p = path.Clean(p)
		if !path.IsAbs(p) {
			return c.Within(p)
		}
		return strings.HasPrefix(path.Join(d.Guest, c.Path)+"/", strings.TrimSuffix(p, "/")+"/")
	})
}

// Close lets go of the directory.
func (d *ChangedDirectory) Close() error { return d.tree.Close() }

// Changes compares the guest's directories with CopyOnWrite with this machine's. Only a sandbox with a name supports it.
// Close each result.
func (s *Sandbox) Changes(ctx context.Context) ([]*ChangedDirectory, error) {
	all, err := s.changes(ctx)
	return all, Fail(err)
}

func (s *Sandbox) changes(ctx context.Context) (all []*ChangedDirectory, err error) {
	if s.name == "" {
		return nil, fmt.Errorf("%w: a sandbox without a name keeps no changes; give it a Name", ErrConfig)
	}
	st, err := loadStored(s.home, s.name)
	if err != nil {
		return nil, err
	}
	cfg, err := configOf(st)
	if err != nil {
		return nil, err
	}
	hide := slices.Clone(st.Hide)
	if st.Credentials != nil {
		hide = append(hide, credentialPatterns(st.Credentials)...)
	}
	defer func() {
		if err != nil {
			for _, d := range all {
				err = errors.Join(err, d.Close())
			}
			all = nil
		}
	}()
	for _, d := range st.Directories {
		if !d.CopyOnWrite {
			continue
		}
		changed, err := changesOf(ctx, s, &cfg, d, hide)
		if err != nil {
			return all, fmt.Errorf("%s: %w", d.Guest, err)
		}
		all = append(all, changed)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%w in %s; a sandbox made with -v HOST:GUEST:cow has one", ErrNoChanges, s.name)
	}
	return all, nil
}

func changesOf(ctx context.Context, s *Sandbox, cfg *Config, d Directory, hide []string) (*ChangedDirectory, error) {
	layer, err := s.client.Changes(ctx, d.Guest)
	if err != nil {
		return nil, err
	}
	file := state.BaseFile(s.run.dir, d.Guest)
	base, err := cow.ReadBase(file)
	if err != nil {
		return nil, err
	}
	root, err := openDirectory(d.Host)
	if err != nil {
		return nil, err
	}
	tree, err := cow.New(root, cow.Options{
		Base: base, BaseFile: file,
		Hidden:   hider(hide),
		Confines: cfg.confines(d.Host),
		Open: func(ctx context.Context, name string) (io.ReadCloser, error) {
			return s.client.OpenChanged(ctx, d.Guest, name)
		},
		Room: func() (int64, error) { return state.Spare(d.Host) },
	})
	if err != nil {
		return nil, err
	}
	entries := make([]cow.Entry, 0, len(layer.Entries))
	for _, e := range layer.Entries {
		entries = append(entries, cow.Entry(e))
	}
	changes, err := tree.Compare(ctx, entries)
	if err != nil {
		return nil, errors.Join(err, tree.Close())
	}
	return &ChangedDirectory{Directory: d, Changes: changes, Omitted: layer.Omitted, tree: tree}, nil
}

// Review opens a session for Changes, or for files, with the sandbox of that name. It starts a stopped sandbox, without
// network, directories of this machine and commands, and Close stops it again. Check paths with CheckReach, since without
// these some lead elsewhere.
func (h *Home) Review(ctx context.Context, name string, o StartOptions) (*Sandbox, error) {
	s, err := connectNamed(ctx, h, name)
	if errors.Is(err, ErrNotRunning) {
		o.attached, o.review = true, true
		s, err = startNamed(ctx, h, name, o)
	}
	return s, Fail(err)
}

// CheckReach refuses, with ErrCopy, a path below a directory of this machine or a file system in memory: a sandbox that
// Review started doesn't have them, so the path would be another file.
func (s *Sandbox) CheckReach(guest string) error {
	if !s.review {
		return nil
	}
	return CheckReach(s.home, s.name, guest)
}

// CheckReach is Sandbox.CheckReach before Review, of a sandbox that is stopped.
func CheckReach(h *Home, name, guest string) error {
	st, err := loadStored(h, name)
	if err != nil {
		return Fail(err)
	}
	below := func(dir string) bool {
		return strings.HasPrefix(path.Clean(guest)+"/", strings.TrimSuffix(dir, "/")+"/")
	}
	for _, d := range st.Directories {
		if below(d.Guest) {
			return fmt.Errorf("%w: %s is in %s of this machine, which a sandbox that is stopped does not have; copy there, or `msb start %s` first", ErrCopy, guest, d.Host, name)
		}
	}
	for _, t := range st.Tmpfs {
		if below(t.Path) {
			return fmt.Errorf("%w: %s is in the guest's memory (--tmpfs %s), which a sandbox that is stopped does not have; `msb start %s` first", ErrCopy, guest, t.Path, name)
		}
	}
	return nil
}

// forReview removes from the Config everything that reading the disk doesn't need. Without a network the policy has no
// effect, and nothing is taken from this machine for it.
func (c *Config) forReview() {
	c.Policy, c.PolicyFile, c.Floor, c.NoNet, c.Containers, c.HTTPProxy, c.Ports, c.Directories, c.HideCredentials, c.Caches = nil, "", nil, true, false, false, nil, nil, false, nil
	c.Pcap, c.Env, c.Tmpfs, c.Restart, c.AutoRemove, c.IdleStop, c.Lifetime, c.review = "", nil, nil, Restart{}, false, 0, 0, true
}
