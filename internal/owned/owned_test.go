package owned_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/msb-project/msb/internal/owned"
)

// form is files "f…", and directories "d…" of the same.
func form(name string, mode os.FileMode) (owned.Form, bool) {
	if mode == os.ModeDir {
		return form, strings.HasPrefix(name, "d")
	}
	return nil, mode == 0 && strings.HasPrefix(name, "f")
}

// TestI13_ForeignEntriesPreventRemoval has directories that msb could have made, and others that differ in one entry.
func TestI13_ForeignEntriesPreventRemoval(t *testing.T) {
	t.Parallel()
	for what, tc := range map[string]struct {
		entries []string // "x/" is a directory, "x ->" a link to a file of the test's
		name    string
		foreign bool
	}{
		"nothing in it":         {nil, "top", false},
		"its own":               {[]string{"f", "f2", "d/", "d/f", "d/d2/", "d/d2/f"}, "top", false},
		"another file":          {[]string{"f", "x"}, "top", true},
		"another file below":    {[]string{"f", "d/", "d/d/", "d/d/x"}, "top", true},
		"another directory":     {[]string{"f", "x/"}, "top", true},
		"a file as a directory": {[]string{"f/"}, "top", true},
		"a directory as a file": {[]string{"d"}, "top", true},
		"a link":                {[]string{"f ->"}, "top", true},
		"itself a link":         {[]string{"f"}, "link", true},
		"itself a file":         {[]string{"f"}, "top/f", true},
	} {
		base := t.TempDir()
		kept := filepath.Join(base, "kept")
		err := errors.Join(os.WriteFile(kept, nil, 0o600), os.Mkdir(filepath.Join(base, "top"), 0o700), os.Symlink("top", filepath.Join(base, "link")))
		for _, e := range tc.entries {
			path := filepath.Join(base, "top", strings.TrimSuffix(e, " ->"))
			switch {
			case strings.HasSuffix(e, "/"):
				err = errors.Join(err, os.Mkdir(path, 0o700))
			case strings.HasSuffix(e, " ->"):
				err = errors.Join(err, os.Symlink(kept, path))
			default:
				err = errors.Join(err, os.WriteFile(path, nil, 0o600))
			}
		}
		parent, openErr := os.Open(base)
		if err := errors.Join(err, openErr); err != nil {
			t.Fatal(err)
		}
		dir, err := owned.Open(parent, tc.name)
		if err == nil {
			if checked := owned.Check(dir, form); errors.Is(checked, owned.ErrForeign) != tc.foreign || (checked != nil) != tc.foreign {
				t.Errorf("%s: checked: %v", what, checked)
			}
			err = owned.Remove(parent, dir, tc.name, form, "f")
			_ = dir.Close()
			if owned.Check(dir, form) == nil || owned.Remove(parent, dir, "kept", form, "") == nil {
				t.Errorf("%s: a closed directory was looked at", what)
			}
		}
		if errors.Is(err, owned.ErrForeign) != tc.foreign || (err != nil) != tc.foreign {
			t.Errorf("%s: %v", what, err)
		}
		_ = parent.Close()
		_, topErr := os.Stat(filepath.Join(base, "top"))
		if os.IsNotExist(topErr) == tc.foreign {
			t.Errorf("%s: the directory: %v", what, topErr)
		}
		for _, e := range tc.entries { // all of it or nothing
			if _, err := os.Lstat(filepath.Join(base, "top", strings.TrimSuffix(e, " ->"))); (err == nil) != tc.foreign {
				t.Errorf("%s: %s: %v", what, e, err)
			}
		}
		if _, err := os.Stat(kept); err != nil {
			t.Errorf("%s: a file beside it: %v", what, err)
		}
	}
	parent, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = parent.Close() }()
	if _, err := owned.Open(parent, "none"); !os.IsNotExist(err) {
		t.Errorf("what is not there: %v", err)
	}
}

// TestI13_LockFilesAreRemovedLast: a kill's leftovers are recognized by their lock file, so that it stays while there
// is anything else.
func TestI13_LockFilesAreRemovedLast(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	top := filepath.Join(base, "top")
	err := os.Mkdir(top, 0o700)
	for _, name := range []string{"f1", "f2", "f3"} {
		err = errors.Join(err, os.WriteFile(filepath.Join(top, name), nil, 0o600))
	}
	parent, openErr := os.Open(base)
	if err := errors.Join(err, openErr); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = parent.Close() }()
	dir, err := owned.Open(parent, "top")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = dir.Close() }()
	names, err := owned.Names(dir)
	if err != nil {
		t.Fatal(err)
	}
	last := names[0] // the one that would go first
	err = owned.Remove(parent, dir, "top", func(name string, mode os.FileMode) (owned.Form, bool) {
		if _, err := os.Stat(filepath.Join(top, last)); err != nil {
			t.Errorf("%s is there still, the last one is gone: %v", name, err)
		}
		return form(name, mode)
	}, last)
	if _, gone := os.Stat(top); err != nil || !os.IsNotExist(gone) {
		t.Errorf("removed: %v, %v", err, gone)
	}
}

func TestI13_OtherUsersDirectoriesAreForeign(t *testing.T) {
	t.Parallel()
	base := "/" // another user's, unless root runs the test
	if os.Geteuid() == 0 {
		base = t.TempDir()
		if err := errors.Join(os.Mkdir(filepath.Join(base, "usr"), 0o700), os.Chown(filepath.Join(base, "usr"), 1, 1)); err != nil {
			t.Fatal(err)
		}
	}
	parent, err := os.Open(base)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = parent.Close() }()
	if _, err := owned.Open(parent, "usr"); !errors.Is(err, owned.ErrForeign) {
		t.Errorf("opened: %v", err)
	}
}

// TestRemovedDirectoriesAreEmpty: of two removals at once, the later one finds nothing to complain about.
func TestRemovedDirectoriesAreEmpty(t *testing.T) {
	root := t.TempDir()
	parent, err := os.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer parent.Close()
	if err := os.Mkdir(filepath.Join(root, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	dir, err := owned.Open(parent, "x")
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if err := os.Remove(filepath.Join(root, "x")); err != nil {
		t.Fatal(err)
	}
	if err := owned.Check(dir, form); err != nil {
		t.Errorf("looking: %v", err)
	}
	if err := owned.Remove(parent, dir, "x", form, ""); err != nil {
		t.Errorf("removing: %v", err)
	}
}

// TestI13_LockFilesStayAfterAFailure: what comes while msb removes is kept, and the lock file by which the rest is found.
func TestI13_LockFilesStayAfterAFailure(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	top := filepath.Join(base, "top")
	err := errors.Join(os.Mkdir(top, 0o700), os.WriteFile(filepath.Join(top, "f-lock"), nil, 0o600), os.WriteFile(filepath.Join(top, "f"), nil, 0o600))
	parent, openErr := os.Open(base)
	if err := errors.Join(err, openErr); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = parent.Close() }()
	dir, err := owned.Open(parent, "top")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = dir.Close() }()
	looks := 0
	err = owned.Remove(parent, dir, "top", func(name string, mode os.FileMode) (owned.Form, bool) {
		if name == "f" {
			looks++
		}
		inside, ok := form(name, mode)
		return inside, ok && (name != "f" || looks == 1) // it was checked, and is another's now
	}, "f-lock")
	if !errors.Is(err, owned.ErrForeign) || looks != 2 {
		t.Errorf("%v after %d looks", err, looks)
	}
	for _, name := range []string{"f", "f-lock"} {
		if _, err := os.Stat(filepath.Join(top, name)); err != nil {
			t.Error(err)
		}
	}
}
