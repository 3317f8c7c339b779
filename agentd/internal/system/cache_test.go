//go:build linux

package system

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestI14_KeysOfCachesAreWords(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"", ".", "..", "../upper", "a/b", "/etc", "A", "-a", "a\x00", "a.b", strings.Repeat("a", 33)} {
		if l, err := CacheLayer(key); err == nil {
			t.Errorf("%q is %s", key, l.Data())
		}
	}
	l, err := CacheLayer("go-mod")
	if err != nil || l.Data() != filepath.Join(upperDir, "cache/go-mod/data") || l.Lower() != noCache {
		t.Errorf("%+v, %v", l, err)
	}
}

func TestCachesAreInTheUsersHome(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ path, home, want string }{
		{"~/.cache/pip", "/root", "/root/.cache/pip"},
		{"~/.npm", "/", "/.npm"},
		{"~/.npm", "", "/.npm"},
		{"~/.npm", "home/node", "/home/node/.npm"},
		{"~/.npm", "/../../etc", "/etc/.npm"},
		{"/usr/local/cargo/git", "/root", "/usr/local/cargo/git"},
		{"relative", "/root", "/relative"},
		{"/a/../../b", "/root", "/b"},
	} {
		if got := (Cache{Path: c.path}).at(c.home); got != c.want {
			t.Errorf("%q in %q: %q, want %q", c.path, c.home, got, c.want)
		}
	}
}

func TestCachePlacesBelongToTheUser(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	deep := filepath.Join(top, "a", "b", "c")
	if err := makeOwned(deep, os.Getuid(), os.Getgid()); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(deep); err != nil || !st.IsDir() || st.Mode().Perm()&0o700 != 0o700 {
		t.Errorf("%v, %v", st, err)
	}
	if err := makeOwned(deep, -1, -1); err != nil {
		t.Errorf("one that is there: %v", err)
	}
	if err := os.WriteFile(filepath.Join(top, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := makeOwned(filepath.Join(top, "file", "below"), 0, 0); err == nil {
		t.Error("a directory below a file")
	}
}
