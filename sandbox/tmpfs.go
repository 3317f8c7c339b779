package sandbox

import (
	"fmt"
	"path"
)

// maxTmpfs bounds how many file systems in memory one sandbox has.
const maxTmpfs = 16

// checkTmpfs says why the file systems in memory can't be.
func (c *Config) checkTmpfs() error {
	if len(c.Tmpfs) > maxTmpfs {
		return fmt.Errorf("%w: %d of them, at most %d may be", ErrTmpfs, len(c.Tmpfs), maxTmpfs)
	}
	for i, t := range c.Tmpfs {
		if !path.IsAbs(t.Path) || path.Clean(t.Path) != t.Path {
			return fmt.Errorf("%w at %q; write an absolute path, such as /tmp", ErrTmpfs, t.Path)
		}
		if guestsOwn(t.Path) {
			return fmt.Errorf("%w at %s, which is the guest's own; choose another place, such as /tmp", ErrTmpfs, t.Path)
		}
		if t.Size < 0 {
			return fmt.Errorf("%w at %s: %d bytes; give it a size, or 0 for half of the memory", ErrTmpfs, t.Path, t.Size)
		}
		if t.Mode != nil && *t.Mode > 0o7777 {
			return fmt.Errorf("%w at %s: mode %o; give it at most 7777", ErrTmpfs, t.Path, *t.Mode)
		}
		for _, o := range c.Tmpfs[:i] {
			if o.Path == t.Path {
				return fmt.Errorf("%w at %s: two of them", ErrTmpfs, t.Path)
			}
		}
		for _, d := range c.Directories { // which are mounted later
			if holds(d.Guest, t.Path) {
				return fmt.Errorf("%w at %s: the directory %s, which is at %s in the guest, would cover it", ErrTmpfs, t.Path, d.Host, d.Guest)
			}
		}
	}
	return nil
}
