package sandbox

import (
	"bytes"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/msb-project/msb/image"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// fullConfig has every field that a sandbox is stored with.
func fullConfig(t *testing.T) Config {
	t.Helper()
	parse := func(text, path string) *policies.Policy {
		p, err := policies.Parse("p.toml", []byte(text), nil)
		must(t, err)
		p.Path = path
		return p
	}
	return Config{
		Policy: parse("version = 1\n[egress]\ndefault = \"deny\"\n", "/a/p.toml"), Floor: parse("version = 1\n[egress]\ndefault = \"public\"\n", "/a/floor.toml"),
		HTTPProxy: true, NoNet: true, Containers: true, Image: "alpine", PolicyImage: true, Backend: "qemu", Cold: true, CPUs: 3, Memory: 1 << 30, Disk: 2 << 30, Hostname: "host", Env: []string{"A=b"},
		Directories: []Directory{{Host: "/h", Guest: "/g", Writable: true}}, Hide: []string{"*.x"}, HideCredentials: true, OperatorDirectories: true, OperatorVolumes: true, RealDirectories: true, DirectoryUser: "me",
		Audit: "/a/audit", AuditLabels: map[string]string{"pod": "web"}, Pcap: "/a/pcap", PcapOptions: PcapOptions{Off: true, MaxBytes: 1, MaxAge: 2, Keep: 3}, IdleStop: time.Minute, Lifetime: time.Hour, AutoRemove: true,
		Ports: []Port{{Host: 1, Guest: 2}}, Restart: Restart{When: "on-failure", Most: 3}, ReadOnly: true, Tmpfs: []Tmpfs{{Path: "/tmp"}}, Volumes: []Volume{{Name: "data", Guest: "/data", ReadOnly: true}}, Caches: []string{"pip"}, Children: &ChildBudget{Count: 1, Images: []string{"a"}},
	}
}

// TestI12_StoredConfigsComeBack: what a sandbox was made with is what its next start has, but for what a start brings
// itself. A field of Config that is new has to be in one of the two.
func TestI12_StoredConfigsComeBack(t *testing.T) {
	t.Parallel()
	ofAStart := []string{"Name", "Label", "Labels", "Home", "Program", "Trust", "Progress", "Pull", "Learn", "Keep", "Attached", "Notice", "PolicyFile", "Pod"}
	cfg := fullConfig(t)
	h := newHome(t)
	lock, err := makeNamed(h, newStored("web", &cfg, &image.Image{Digest: "sha256:0"}, &Admission{}))
	must(t, err)
	must(t, lock.Close())
	st, err := state.ReadStored(namedPath(h, "web"), "web")
	must(t, err)
	got, err := configOf(st)
	must(t, err)
	was, is := reflect.ValueOf(cfg), reflect.ValueOf(got)
	for i := range was.NumField() {
		name := was.Type().Field(i).Name
		if !was.Type().Field(i).IsExported() {
			continue
		}
		switch a, b := was.Field(i).Interface(), is.Field(i).Interface(); {
		case slices.Contains(ofAStart, name):
		case was.Field(i).IsZero():
			t.Errorf("%s is not tried", name)
		case name == "Policy" || name == "Floor":
			p, q := a.(*policies.Policy), b.(*policies.Policy)
			if q == nil || !bytes.Equal(policies.Encode(p), policies.Encode(q)) || p.Path != q.Path {
				t.Errorf("%s came back as %v", name, q)
			}
		case !reflect.DeepEqual(a, b):
			t.Errorf("%s was %v and is %v", name, a, b)
		}
	}
}

// TestI15_StoredFloorsKeepTheirPlace: what confines a sandbox is told by the path of its floor, for each of several floors.
func TestI15_StoredFloorsKeepTheirPlace(t *testing.T) {
	t.Parallel()
	cfg := fullConfig(t)
	top := cfg.Floor
	cfg.Floor = policies.Inherit(top, policies.Default())
	cfg.Floor.Floor = top
	got, err := configOf(newStored("web", &cfg, &image.Image{Digest: "sha256:0"}, &Admission{}))
	must(t, err)
	for p := got.Floor; p != nil; p = p.Floor {
		if p.Path != top.Path {
			t.Errorf("a floor is at %q, want %q", p.Path, top.Path)
		}
	}
	if got.Floor.Floor == nil {
		t.Error("a floor is lost")
	}
}
