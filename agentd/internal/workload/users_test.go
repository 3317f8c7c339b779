//go:build linux

package workload

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestUserLookupMatchesContainerTools(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := accounts{passwd: filepath.Join(dir, "passwd"), group: filepath.Join(dir, "group")}
	write := func(path, text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(a.passwd, "# a comment\nroot:x:0:0:root:/root:/bin/sh\nweb:x:33:34::/srv:/bin/false\r\nbroken:x:abc:0::/:\nshort:x:1\n"+
		"minus:x:4294967295:0::/:/bin/sh\n99:x:5:5::/named:/bin/sh\nnohome:x:7:7:::/bin/sh\n")
	write(a.group, "root:x:0:\ndocker:x:998:web,other\nlogs:x:997: web \nbad:x:z:web\n99:x:77:\n")
	for spec, want := range map[string]*identity{
		"":          {uid: 0, gid: 0, home: "/root", name: "root"},
		"root":      {uid: 0, gid: 0, home: "/root", name: "root"},
		"web":       {uid: 33, gid: 34, groups: []uint32{998, 997}, home: "/srv", name: "web"},
		"33":        {uid: 33, gid: 34, groups: []uint32{998, 997}, home: "/srv", name: "web"},
		"web:logs":  {uid: 33, gid: 997, home: "/srv", name: "web"},
		"web:5":     {uid: 33, gid: 5, home: "/srv", name: "web"},
		"1234":      {uid: 1234, gid: 0, home: "/"},
		"1234:4321": {uid: 1234, gid: 4321, home: "/"},
		"99":        {uid: 5, gid: 5, home: "/named", name: "99"}, // a name of digits is a name first
		"nohome":    {uid: 7, gid: 7, home: "/", name: "nohome"},
		"nobody":    nil, "web:nogroup": nil, "broken": nil, "short": nil, "minus": nil, "4294967295": nil, "-1": nil, "web:": nil,
	} {
		got, err := a.lookup(spec)
		if want == nil {
			if err == nil {
				t.Errorf("%q: got %+v, want an error", spec, got)
			}
			continue
		}
		if err != nil || got.uid != want.uid || got.gid != want.gid || got.home != want.home || got.name != want.name || !slices.Equal(got.groups, want.groups) {
			t.Errorf("%q: got %+v, %v; want %+v", spec, got, err, *want)
		}
	}
}

func TestHostileAccountFilesAreWithstood(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := accounts{passwd: filepath.Join(dir, "passwd"), group: filepath.Join(dir, "none")}
	if id, err := a.lookup(""); err != nil || id.uid != 0 || id.home != "/root" {
		t.Errorf("no file: %+v, %v", id, err)
	}
	if err := unix.Mkfifo(a.passwd, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := a.lookup(""); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a FIFO: %v", err)
	}
	if err := os.Remove(a.passwd); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(a.passwd)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(1 << 40); err != nil {
		t.Fatal(err)
	}
	if _, err := a.lookup(""); err == nil {
		t.Error("a file of 1 TiB was read")
	}
}

func TestMergeEnvKeepsUniqueKeys(t *testing.T) {
	t.Parallel()
	got := MergeEnv([]string{"A=1", "B=2", "A=3"}, []string{"B=4", "C=5=6"})
	if want := []string{"A=3", "B=4", "C=5=6"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
