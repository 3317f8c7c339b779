package cow

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/msb-project/msb/internal/foldname"
)

// maxPath bounds the paths that guests report, in bytes. For a file of the host
// with a longer path it is unknown whether the guest has another version.
const maxPath = 3 << 10

// comparison is one Compare.
type comparison struct {
	*Tree
	ctx     context.Context
	entries map[string]*Entry
	heads   map[string]bool // directories, folded, in which the guest has a HEAD
	changes []Change
}

// Compare says how the guest's version of the directory differs from the host's,
// in the order of paths. Parents stand before what is in them in the guest's
// list.
func (t *Tree) Compare(ctx context.Context, entries []Entry) ([]Change, error) {
	c := &comparison{Tree: t, ctx: ctx, entries: make(map[string]*Entry, len(entries)), heads: map[string]bool{}}
	for i := range entries {
		e := &entries[i]
		up := c.entries[path.Dir(e.Path)]
		if c.entries[e.Path] != nil || path.Dir(e.Path) != "." && (up == nil || up.Whiteout || !up.Mode.IsDir()) {
			return nil, fmt.Errorf("%w: %.200q", errList, e.Path)
		}
		c.entries[e.Path] = e
		if foldname.Element(path.Base(e.Path)) == "head" && !e.Whiteout {
			c.heads[foldname.Path(path.Dir(e.Path))] = true
		}
	}
	for i := range entries {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := c.entry(&entries[i]); err != nil {
			return nil, err
		}
	}
	for i := range c.changes {
		c.judge(&c.changes[i])
	}
	slices.SortFunc(c.changes, func(a, b Change) int { return strings.Compare(a.Path, b.Path) })
	return c.changes, nil
}

func (c *comparison) add(ch Change) error {
	if len(c.changes) == maxChanges {
		return fmt.Errorf("%w: more than %d; remove in the guest what is not wanted, or stop sharing what is (msb cp copies directories)", errMany, maxChanges)
	}
	c.changes = append(c.changes, ch)
	return nil
}

// entry compares one file of the layer.
func (c *comparison) entry(e *Entry) error {
	if c.opts.Hidden(e.Path) {
		if e.Whiteout {
			return nil
		}
		return c.add(Change{Path: e.Path, Kind: Added, New: version(e.Mode, e.Size, e.Target), Refusals: []Refusal{{refusedHidden, "the sandbox doesn't see the host's files of that name (--hide)", true}}})
	}
	host, info, err := c.look(e.Path)
	if errors.Is(err, errMount) {
		return c.add(Change{Path: e.Path, Kind: Added, New: version(e.Mode, e.Size, e.Target), Refusals: []Refusal{{refusedMount, errMount.Error(), true}}})
	}
	if err != nil {
		return err
	}
	if e.Whiteout {
		if info == nil {
			return nil
		}
		_, err := c.remove(e.Path, host, info)
		return err
	}
	ch := Change{Path: e.Path, Kind: Added, New: version(e.Mode, e.Size, e.Target), host: host}
	if info != nil {
		if ch.Old, err = c.old(e.Path, info); err != nil {
			return err
		}
		ch.Kind = Modified
		if done, err := c.existing(e, &ch, host, info); done || err != nil {
			return err
		}
	}
	if t := e.Mode.Type(); t != 0 && t != fs.ModeDir && t != fs.ModeSymlink {
		ch.Refusals = append(ch.Refusals, Refusal{refusedSpecial, "it is a device, FIFO or socket", true})
	}
	return c.add(ch)
}

// existing compares a file that both have; done means that the file itself is
// unchanged, though files in the directory may have changed.
func (c *comparison) existing(e *Entry, ch *Change, host File, info fs.FileInfo) (done bool, err error) {
	if info.IsDir() && (!e.Mode.IsDir() || e.Opaque) {
		kept, err := c.removeIn(e.Path)
		if err != nil {
			return true, err
		}
		if kept && !e.Mode.IsDir() {
			ch.Refusals = append(ch.Refusals, holdsMore())
		}
	}
	if info.Mode().Type() != e.Mode.Type() {
		return false, nil
	}
	switch {
	case e.Mode.IsDir():
		return true, nil
	case e.Mode.Type() == fs.ModeSymlink:
		return ch.Old.Target == e.Target, nil
	case !e.Mode.IsRegular():
		return false, nil
	}
	perm := permissions(e.Mode, info.Mode())
	ch.New = version(perm, e.Size, "")
	if info.Size() != e.Size {
		return false, nil
	}
	equal, err := c.equal(e.Path, host, e.Size)
	if err != nil {
		return true, err
	}
	if equal {
		ch.Kind = Mode
	}
	return equal && perm == info.Mode().Perm(), nil
}

// permissions are the guest's, without write permission for group and others
// unless the host's file has it already.
func permissions(mode, host fs.FileMode) fs.FileMode { return mode.Perm() & (host.Perm() | 0o755) }

func (c *comparison) old(p string, info fs.FileInfo) (*Version, error) {
	target := ""
	if info.Mode().Type() == fs.ModeSymlink {
		parent, err := c.dir(path.Dir(p))
		if err != nil {
			return nil, err
		}
		defer func() { _ = parent.Close() }() // it was read only
		if target, err = parent.Readlink(path.Base(p)); err != nil {
			return nil, err
		}
	}
	return version(info.Mode(), info.Size(), target), nil
}

// equal compares the contents of two files of the same size.
func (c *comparison) equal(p string, host File, size int64) (bool, error) {
	ours, err := c.openHost(p, host)
	if err != nil {
		return false, nil // one that can't be read, or is another by now, differs
	}
	defer func() { _ = ours.Close() }() // it was read only
	theirs, err := c.opts.Open(c.ctx, p)
	if err == nil {
		defer func() { _ = theirs.Close() }() // the same
		var equal bool
		if equal, err = equalReaders(ours, io.LimitReader(theirs, size+1)); err == nil {
			return equal, nil
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // removed since its directory was read
	}
	return false, err
}

func equalReaders(a, b io.Reader) (bool, error) {
	const part = 64 << 10
	x, y := make([]byte, part), make([]byte, part)
	for {
		n, endA, errA := fill(a, x)
		m, endB, errB := fill(b, y)
		if err := errors.Join(errA, errB); err != nil {
			return false, err
		}
		if endA != endB || !bytes.Equal(x[:n], y[:m]) {
			return false, nil
		}
		if endA {
			return true, nil
		}
	}
}

// fill reads until b is full or r ends.
func fill(r io.Reader, b []byte) (n int, end bool, err error) {
	n, err = io.ReadFull(r, b)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return n, true, nil
	}
	return n, false, err
}

func holdsMore() Refusal {
	return Refusal{refusedHidden, "it holds files that the sandbox doesn't see, or whose paths are too long", true}
}

// remove adds the removal of a file of the host, and of all that is in it. kept
// tells that something in it stays.
func (c *comparison) remove(p string, host File, info fs.FileInfo) (kept bool, err error) {
	if err := c.ctx.Err(); err != nil {
		return false, err
	}
	old, err := c.old(p, info)
	if err != nil {
		return false, err
	}
	ch := Change{Path: p, Kind: Deleted, Old: old, host: host}
	if info.IsDir() {
		if kept, err = c.removeIn(p); err != nil {
			return kept, err
		}
		if kept {
			ch.Refusals = []Refusal{holdsMore()}
		}
	}
	return kept, c.add(ch)
}

// removeIn adds the removal of what is in a directory of the host, but for what
// the guest has there itself.
func (c *comparison) removeIn(p string) (kept bool, err error) {
	dir, err := c.dir(p)
	if errors.Is(err, errMount) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	defer func() { _ = dir.Close() }() // it was read only
	names, err := namesIn(dir)
	if err != nil {
		return false, err
	}
	for _, name := range names {
		below := path.Join(p, name)
		if c.entries[below] != nil {
			continue // which compares it
		}
		host, info, err := lookIn(dir, name)
		switch {
		case err != nil:
			return kept, err
		case info == nil:
			continue
		case len(below) > maxPath || c.opts.Hidden(below) || info.Mode().Type()&^(fs.ModeDir|fs.ModeSymlink) != 0:
			kept = true
			continue
		}
		more, err := c.remove(below, host, info)
		if kept = kept || more; err != nil {
			return kept, err
		}
	}
	return kept, nil
}

func namesIn(dir *os.Root) ([]string, error) {
	f, err := dir.Open(".")
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was read only
	names, err := f.Readdirnames(-1)
	slices.Sort(names)
	return names, err
}

// judge adds why a change is refused.
func (c *comparison) judge(ch *Change) {
	refuse := func(name, why string, final bool) { ch.Refusals = append(ch.Refusals, Refusal{name, why, final}) }
	if why := c.opts.Confines(ch.Path); why != "" {
		refuse(refusedConfines, why, true)
	}
	if ch.New != nil && ch.New.Mode.Type() == fs.ModeSymlink {
		if why := c.leadsOut(ch.Path, ch.New.Target); why != "" {
			refuse(refusedLink, why, true)
		}
	}
	if was, shown := c.opts.Base[ch.Path]; !ch.host.directory() && (ch.Old == nil && was != File{} || ch.Old != nil && (!shown || was != ch.host)) {
		switch {
		case ch.Old == nil:
			refuse(refusedChanged, "the host has removed it since the sandbox was shown it", false)
		case !shown || was == File{}:
			refuse(refusedChanged, "there is no record that the sandbox was shown the host's file", false)
		default:
			refuse(refusedChanged, "the host has changed it since the sandbox was shown it", false)
		}
	}
	if n := ch.New; n != nil && n.Mode.IsRegular() {
		before := fs.FileMode(0)
		if ch.Old != nil && ch.Old.Mode.IsRegular() {
			before = ch.Old.Mode
		}
		if n.Mode.Perm()&0o111&^before != 0 {
			refuse(refusedExec, "it becomes executable", false)
		}
	}
	mode := fs.FileMode(0)
	if v := cmp.Or(ch.New, ch.Old); v != nil {
		mode = v.Mode
	}
	named, note := byName(ch.Path, mode, c.repository)
	ch.Refusals, ch.Note = append(ch.Refusals, named...), note
}

// repository reports whether the guest or the host has a HEAD in a directory.
func (c *comparison) repository(dir string) bool {
	if c.heads[foldname.Path(dir)] {
		return true
	}
	_, info, err := c.look(path.Join(dir, "HEAD"))
	return err != nil || info != nil
}

// leadsOut says why a link is not made; "" for one that stays in the directory.
func (c *comparison) leadsOut(p, target string) string {
	if path.IsAbs(target) || target == "" {
		return "it leads to " + quoted(target) + ", from the root of this machine"
	}
	down := false
	for name := range strings.SplitSeq(target, "/") {
		if name == ".." && down {
			return "it leads to " + quoted(target) + ", up again behind a name that may be a link"
		}
		down = down || name != ".." && name != "." && name != ""
	}
	to := path.Join(path.Dir(p), target)
	if to == ".." || strings.HasPrefix(to, "../") {
		return "it leads to " + quoted(target) + ", out of the directory"
	}
	if _, err := c.root.Stat(to); escapes(err) {
		return "it leads to " + quoted(target) + ", where a link leads out of the directory"
	}
	return ""
}

func quoted(s string) string { return fmt.Sprintf("%.200q", s) }

// escapes tells os.Root's refusal, for which it exports no error.
func escapes(err error) bool {
	var p *fs.PathError
	return errors.As(err, &p) && p.Err.Error() == "path escapes from parent"
}
