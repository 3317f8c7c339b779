package sandbox

import (
	"os"
	"reflect"
	"slices"
	"testing"

	"github.com/msb-project/msb/policies"
)

// TestI14_ConfiningFilesAreNotApplied has the policy and what its secrets' commands run in a directory that is copied on
// write. The twins are files beside them.
func TestI14_ConfiningFilesAreNotApplied(t *testing.T) {
	at := layout(t, []string{"proj/p.toml", "proj/scripts/get.sh", "proj/src/x", "proj/bin/tool", "proj/logs/x"}, nil)
	t.Setenv("HOME", at("nosuch"))
	t.Setenv("PATH", at("proj/bin")+":"+os.Getenv("PATH"))
	p := policies.Default()
	p.Path = at("proj/p.toml")
	c := &Config{Policy: p, PolicyFile: at("proj/p.toml"), Audit: at("proj/logs/audit.jsonl")}
	check := func(dir string, want map[string]bool) {
		t.Helper()
		confines := c.confines(at(dir))
		for p, refused := range want {
			if why := confines(p); (why != "") != refused {
				t.Errorf("%s in %s: %q, want refused %t", p, dir, why, refused)
			}
		}
	}
	check("proj", map[string]bool{"p.toml": true, "P.TOML": true, "p.toml.": true, "logs": true, "logs/audit.jsonl": true, "logs/other": false, "scripts/get.sh": false, "bin/new": false, "src/x": false})
	p.Secrets = []policies.Secret{{Name: "T", From: policies.Source{Kind: policies.FromCommand, Argv: []string{"/bin/sh", at("proj/scripts/get.sh")}}}}
	check("proj", map[string]bool{"p.toml": true, "scripts/get.sh": true, "bin/new": true})
	check("proj/bin", map[string]bool{"new": true})
	c.PolicyFile, p.Path = "", ""
	check("proj", map[string]bool{"p.toml": false, "bin/new": true, "src/x": false})
}

func TestPathsChooseChanges(t *testing.T) {
	t.Parallel()
	v := &ChangeVersion{}
	d := &ChangedDirectory{Directory: Directory{Guest: "/work/sub"}, Changes: []Change{
		{Path: "a", Kind: ChangeDeleted}, {Path: "a/b", Kind: ChangeDeleted}, {Path: "new", Kind: ChangeAdded, New: v}, {Path: "new/f", Kind: ChangeAdded, New: v}, {Path: "new/g", Kind: ChangeAdded, New: v}, {Path: "newer", Kind: ChangeAdded, New: v},
	}}
	for path, want := range map[string][]string{
		"new/f": {"new", "new/f"}, "/work/sub/new": {"new", "new/f", "new/g"}, "a": {"a/b", "a"}, "a/b": {"a/b"}, "/work": {"a/b", "a", "new", "new/f", "new/g", "newer"}, "/work/su": nil, "/": {"a/b", "a", "new", "new/f", "new/g", "newer"},
		".": {"a/b", "a", "new", "new/f", "new/g", "newer"}, "./newer/": {"newer"}, "/work/sub/newer": {"newer"}, "../x": nil, "/new": nil,
	} {
		var got []string
		for _, c := range d.ApplyOrder([]string{path}) {
			got = append(got, c.Path)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	if all := d.ApplyOrder(nil); len(all) != 6 {
		t.Errorf("%d changes", len(all))
	}
}

// TestReviewsTakeNothingFromTheHost: what a sandbox is started with so that its disk can be looked at.
func TestReviewsTakeNothingFromTheHost(t *testing.T) {
	t.Parallel()
	without := []string{
		"Policy", "PolicyFile", "Floor", "Containers", "HTTPProxy", "Ports", "Directories", "HideCredentials", "Caches", "Pcap", "Env", "Tmpfs", "Restart", "AutoRemove", "IdleStop", "Lifetime",
	}
	c := fullConfig(t)
	c.PolicyFile, c.NoNet = "p", false
	before := reflect.ValueOf(c)
	c.forReview()
	after := reflect.ValueOf(c)
	for i := range before.NumField() {
		name := before.Type().Field(i).Name
		if !before.Type().Field(i).IsExported() || name == "NoNet" {
			continue
		}
		was, is := before.Field(i), after.Field(i)
		switch gone := slices.Contains(without, name); {
		case gone && (was.IsZero() || !is.IsZero()):
			t.Errorf("%s was %v and is %v", name, was, is)
		case !gone && !reflect.DeepEqual(was.Interface(), is.Interface()):
			t.Errorf("%s was %v and is %v", name, was, is)
		}
	}
	if !c.NoNet || !c.review {
		t.Errorf("%+v", c)
	}
	if err := c.fill(); err != nil {
		t.Error(err)
	}
}
