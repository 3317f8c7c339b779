package supervisor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// TestI15_ReloadsFollowNoOtherLink exchanges a link on the way to the policy file while a sandbox runs. Its twins change
// the file itself, and save it as editors do.
func TestI15_ReloadsFollowNoOtherLink(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	at := func(p string) string { return filepath.Join(top, p) }
	write := func(p, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(at(p)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at(p), []byte("version = 1\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	link := func(p, to string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(at(p)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(at(p)); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		if err := os.Symlink(to, at(p)); err != nil {
			t.Fatal(err)
		}
	}
	const open = "[egress]\ndefault = \"public\"\n"
	for name, c := range map[string]struct {
		path    string
		change  func()
		refused bool
	}{
		"another file":           {"proj/p.toml", func() { link("proj/p.toml", "../evil/p.toml") }, true},
		"a file in place of it":  {"proj/p.toml", func() { _ = os.Remove(at("proj/p.toml")); write("proj/p.toml", open) }, true},
		"a directory on the way": {"proj/conf/p.toml", func() { link("proj/conf", "../evil") }, true},
		"an edit":                {"proj/p.toml", func() { write("dot/p.toml", open) }, false},
		"an editor's rename": {"proj/conf/p.toml", func() {
			write("dot/p.toml~", open)
			if err := os.Rename(at("dot/p.toml~"), at("dot/p.toml")); err != nil {
				t.Fatal(err)
			}
		}, false},
	} {
		write("dot/p.toml", "")
		write("evil/p.toml", open)
		link("proj/p.toml", "../dot/p.toml")
		link("proj/conf", "../dot")
		admit := admitReload(&state.Plan{Spec: state.Spec{PolicyFile: at(c.path)}, Home: at("home")})
		c.change()
		p, err := policies.Load(at(c.path))
		if err != nil {
			t.Fatal(err)
		}
		if _, err = admit(p); (err != nil) != c.refused || err != nil && !strings.Contains(err.Error(), "leads to another file") {
			t.Errorf("%s: %v, want refused %t", name, err, c.refused)
		}
	}
}
