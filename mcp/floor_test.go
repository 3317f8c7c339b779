package mcp

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/msb-project/msb/image"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox"
)

// TestPoliciesKnowTheToolsets, so that msb policy check judges agent.tools as a start does.
func TestPoliciesKnowTheToolsets(t *testing.T) {
	t.Parallel()
	if got, want := policies.AgentTools(), slices.Concat(Toolsets(), []string{AllTools}, Lists()); !slices.Equal(got, want) {
		t.Errorf("policies know %q, the server %q", got, want)
	}
}

func TestImagesArePermittedInAnySpelling(t *testing.T) {
	t.Parallel()
	p := serve(t, func(o *Options) { o.Images = []string{"python:3.12"} })
	for ref, pull := range map[string]image.Pull{"python:3.12": image.PullMissing, "docker.io/library/python:3.12": image.PullMissing, "python:3.13": image.PullNever, "library/python": image.PullNever} {
		cfg, err := p.opts.config(&machineArgs{Image: ref})
		if err != nil || cfg.Pull != pull || (pull == image.PullMissing) != (cfg.Image == "python:3.12") {
			t.Errorf("%s: %s is pulled %q, %v", ref, cfg.Image, cfg.Pull, err)
		}
	}
}

func TestImagesOfFlagsAreReferences(t *testing.T) {
	t.Parallel()
	p := serve(t, nil)
	for ref, want := range map[string]string{"python:3.12": "", "Python:3": `did you mean "python:3"?`, "Python:::3": "invalid image reference", "": "it is empty"} {
		_, err := Options{Home: p.opts.Home, Images: []string{ref}}.Check()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %q", ref, err, want)
		}
	}
}

// TestI11_FlagDirectoriesEqualTheFiles, by whatever path they are named, and read-only where either says so.
func TestI11_FlagDirectoriesEqualTheFiles(t *testing.T) {
	top := t.TempDir()
	if err := errors.Join(os.MkdirAll(filepath.Join(top, "src", "in"), 0o755), os.Symlink("src", filepath.Join(top, "link"))); err != nil {
		t.Fatal(err)
	}
	t.Chdir(top)
	file := []sandbox.Directory{{Host: filepath.Join(top, "src"), Guest: "/work", Writable: true}, {Host: filepath.Join(top, "src"), Guest: "/look"}}
	for _, c := range []struct {
		host, guest        string
		writable, possible bool
	}{
		{"./src", "/work", true, true},
		{"src/../src/", "/work", false, true},
		{"link", "/work", true, true},
		{"src", "/look", false, true},
		{"src", "/look", true, false},
		{"src/in", "/work", false, false},
		{"src", "/other", false, false},
		{"nosuch", "/work", false, false},
	} {
		got, err := narrowed(file, []sandbox.Directory{{Host: c.host, Guest: c.guest, Writable: c.writable}})
		if (err == nil) != c.possible {
			t.Errorf("%+v: %v", c, err)
		}
		if want := c.guest != "/work" || c.writable; err == nil && (got[0].Writable != want || got[1].Writable || got[0].Host != file[0].Host) {
			t.Errorf("%+v: %+v", c, got)
		}
	}
	for _, mode := range []sandbox.Directory{{Writable: true}, {}, {CopyOnWrite: true}} {
		flag := sandbox.Directory{Host: "src", Guest: "/work", Writable: mode.Writable, CopyOnWrite: mode.CopyOnWrite}
		if got, err := narrowed(file, []sandbox.Directory{flag}); err != nil || got[0].Writable != mode.Writable || got[0].CopyOnWrite != mode.CopyOnWrite {
			t.Errorf("%+v: %+v, %v", flag, got, err)
		}
	}
	if got, err := narrowed(file, nil); err != nil || !slices.Equal(got, file) {
		t.Errorf("no flag: %+v, %v", got, err)
	}
}

// TestI11_MemoryStaysWithinTheBound that the operator gives, also where a call doesn't name it.
func TestI11_MemoryStaysWithinTheBound(t *testing.T) {
	t.Parallel()
	for bound, want := range map[int64]int64{128 << 20: 128 << 20, 4 << 30: sandbox.DefaultMemory} {
		p := serve(t, func(o *Options) { o.Memory = bound })
		p.says(t, false, "sandbox_run", m{"command": "true"})
		if got := p.fake.runs[0].Memory; got != want {
			t.Errorf("a bound of %d: %d bytes, want %d", bound, got, want)
		}
		p.says(t, false, "sandbox_run", m{"command": "true", "memory_mb": bound >> 20})
		p.says(t, true, "sandbox_run", m{"command": "true", "memory_mb": bound>>20 + 1}, "give it 96 to")
	}
}

// TestI11_UselessRulesAreNamedInPart: a call may give hundreds.
func TestI11_UselessRulesAreNamedInPart(t *testing.T) {
	t.Parallel()
	p := serve(t, func(o *Options) { o.Sandboxes = 9 })
	for _, n := range []int{0, 1, maxUseless, maxUseless + 1, sandbox.MaxNarrowAllow} {
		allow := []string{}
		for i := range n {
			allow = append(allow, fmt.Sprintf("a%d.example:443", i))
		}
		text := p.says(t, false, "sandbox_create", m{"name": fmt.Sprintf("s%d", n), "allow": allow})
		if got := strings.Count(text, "does not allow it"); got != min(n, maxUseless) || strings.HasSuffix(text, "\nothers too") != (n > maxUseless) {
			t.Errorf("%d rules: %d named: %s", n, got, text)
		}
	}
}

// TestI15_PolicyImagesNeedApproval: those that the policy names may be pulled with the user's credentials only as far
// as the file is approved; a flag is the operator's own, and what is in the cache is not pulled at all.
func TestI15_PolicyImagesNeedApproval(t *testing.T) {
	t.Parallel()
	const own, listed, flagged = "own.example/x:1", "listed.example/x:1", "flagged.example/x:1"
	for _, c := range []struct {
		floor, asked   string
		ofPolicy, pull bool
	}{
		{"[sandbox]\nimage = \"" + own + "\"\n", "", true, true},
		{"", "", false, false},
		{"", flagged, false, true},
		{"", "other.example/x:1", false, false},
		{"[sandbox]\nimage = \"" + own + "\"\n[agent]\nimages = [\"" + listed + "\"]\n", listed, true, true},
	} {
		o := Options{Home: newHome(t), Floor: policy(t, c.floor)}
		if o.Floor.Agent == nil {
			o.Images = []string{flagged}
		}
		if err := o.fill(); err != nil {
			t.Fatal(err)
		}
		cfg, err := o.config(&machineArgs{Image: c.asked})
		if err != nil || cfg.PolicyImage != c.ofPolicy || (cfg.Pull == image.PullMissing) != c.pull {
			t.Errorf("%q asked for %q: of the policy %v, pull %q, %v", c.floor, c.asked, cfg.PolicyImage, cfg.Pull, err)
		}
	}
}
