package sandbox

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/msb-project/msb/image"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/policies/grants"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// TestPlansSayAllThatARunIs: what isn't stored of a configuration reaches the supervisor too, with what its policy's sources were found
// to be, and what is left out gets its default.
func TestPlansSayAllThatARunIs(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	policy, err := policies.Parse("p.toml", []byte("version = 1\n[[egress.allow]]\nhosts = [\"a.example\"]\n[secrets.TOKEN]\nfrom = \"file:/token\"\nhosts = [\"a.example\"]\nin = [\"basic\"]\n"), nil)
	must(t, err)
	policy.Secrets[0].From.Hold = &policies.Hold{Path: "/the/real/token"}
	admitted := &Admission{Policy: policy}
	for _, name := range []string{"", "web"} {
		dir := t.TempDir()
		s := &Sandbox{name: name, home: h, run: &runDir{dir: dir, id: "sb-1"}, image: &image.Image{DiskPath: "/image.ext4", Config: image.Config{User: "app"}}}
		cfg := Config{
			Name: name, Policy: policy, Disk: 64 << 20, Learn: "/learned.toml", Keep: true, Attached: true, Children: &ChildBudget{}, Hide: []string{"*.key"}, Pod: &Pod{Namespace: 7},
			cacheWork: "/caches/work", forget: "a certificate",
		}
		p, err := s.plan(&cfg, admitted, "/agent")
		must(t, err)
		if !reflect.DeepEqual(p.Holds, grants.HoldsOf(policy)) || len(p.Holds.Secrets) != 1 {
			t.Errorf("%q: the sources are held to %+v", name, p.Holds)
		}
		if p.Name != name || p.ID != "sb-1" || p.Home != h.Dir() || p.Dir != dir || p.AgentDisk != "/agent" || p.ImageDisk != "/image.ext4" || p.Image.User != "app" ||
			p.Learn != "/learned.toml" || !p.Keep || !p.Attached || p.Review || p.CacheWork != "/caches/work" || p.ForgetCA != "a certificate" || p.Pod != cfg.Pod || !slices.Contains(p.Hide, "*.key") {
			t.Errorf("%q: %+v", name, p)
		}
		if p.Children != (name != "") {
			t.Errorf("%q: it may have children: %t", name, p.Children)
		}
		if p.Hostname != "sb-1" || p.Audit != filepath.Join(dir, state.AuditLog) || p.UpperDisk != filepath.Join(dir, state.UpperDisk) {
			t.Errorf("%q: the defaults are %q, %q and %q", name, p.Hostname, p.Audit, p.UpperDisk)
		}
		// That of a sandbox with a name is there already.
		if info, err := os.Stat(p.UpperDisk); (err == nil) != (name == "") || err == nil && info.Size() != cfg.Disk {
			t.Errorf("%q: the disk: %v, %v", name, info, err)
		}
		cfg.Hostname, cfg.Audit, cfg.Disk, cfg.review = "box", "/audit.jsonl", 0, true
		if p, err = s.plan(&cfg, admitted, "/agent"); err != nil || p.Hostname != "box" || p.Audit != "/audit.jsonl" || p.UpperDisk != "" || !p.Review || p.Children {
			t.Errorf("%q: a review: %+v, %v", name, p, err)
		}
	}
}
