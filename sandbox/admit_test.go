package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/msb-project/msb/image"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/policies/grants"
)

const taking = "version = 1\n[egress]\ndefault = \"public\"\n[secrets.T]\nfrom = \"env:TAKEN\"\nhosts = [\"a.example\"]\nin = [\"basic\"]\n"

// aPolicy is a home and a policy file with text in it.
func aPolicy(t *testing.T, text string) (*Home, string) {
	t.Helper()
	h, err := OpenHome(filepath.Join(t.TempDir(), "home"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "policy.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return h, path
}

func loaded(t *testing.T, path string) *policies.Policy {
	t.Helper()
	p, err := policies.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// lacks returns what an error says is missing.
func lacks(t *testing.T, err error) *GrantsError {
	t.Helper()
	var e *GrantsError
	if !errors.As(err, &e) || KindOf(err) != KindGrants || len(e.New) == 0 {
		t.Fatalf("%v, want a GrantsError", err)
	}
	return e
}

func TestI15_OnlyFilesNeedApproval(t *testing.T) {
	t.Parallel()
	h, path := aPolicy(t, taking)
	_, err := h.Trust().Admit(loaded(t, path), AdmitOptions{})
	e := lacks(t, err)
	if e.File != path || e.New[0].Kind != grants.Secret || !strings.Contains(err.Error(), "msb policy trust "+path) {
		t.Errorf("%+v: %v", e, err)
	}
	value, err := policies.Parse("in code", []byte(taking), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Trust().Admit(value, AdmitOptions{}); err != nil {
		t.Errorf("a value: %v", err)
	}
	for name, o := range map[string]AdmitOptions{"trusted": {Trust: true}, "kept": {Kept: e.All}} {
		if _, err := h.Trust().Admit(loaded(t, path), o); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := h.Trust().Approve(path, e.All); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Trust().Admit(loaded(t, path), AdmitOptions{}); err != nil {
		t.Errorf("approved: %v", err)
	}
	// The start of a sandbox ends there too, before an image is looked for.
	_, err = Start(t.Context(), Config{Home: filepath.Join(t.TempDir(), "other"), Policy: loaded(t, path), Image: "dir:/nosuch"})
	lacks(t, err)
}

func TestI15_ApprovalsAreOfTheUserAlone(t *testing.T) {
	t.Parallel()
	h, path := aPolicy(t, taking)
	set, err := h.Trust().Grants(loaded(t, path))
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if err := h.Trust().Approve(path, set); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	_, at, err := approvalOf(h, path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(at)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info, err)
	}
	if left, _ := os.ReadDir(filepath.Dir(at)); len(left) != 1 {
		t.Errorf("%v is left", left)
	}
	// What can't be read, or is of another file, approves nothing.
	text, err := os.ReadFile(at)
	if err != nil {
		t.Fatal(err)
	}
	for name, damaged := range map[string]string{
		"cut": string(text[:len(text)/2]), "of another file": strings.Replace(string(text), path, path+"x", 1),
		"of another version": strings.Replace(string(text), `"version": 1`, `"version": 2`, 1), "too long": string(text) + strings.Repeat(" ", maxApproval),
	} {
		if err := os.WriteFile(at, []byte(damaged), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := h.Trust().Approved(path); len(got) != 0 || err != nil {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	if err := h.Trust().Approve(path, make(grants.Set, maxApproval/10)); err == nil {
		t.Error("an approval without bounds was written")
	}
	for i := range maxApprovals - 2 { // besides this one, and the one that is the last
		if err := os.WriteFile(filepath.Join(filepath.Dir(at), strconv.Itoa(i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(h.Trust().Approve(path+".last", set), h.Trust().Approve(path, set)); err != nil {
		t.Errorf("below the bound, or again: %v", err)
	}
	if err := h.Trust().Approve(path+".over", set); !errors.Is(err, ErrConfig) {
		t.Errorf("one more than %d approvals: %v", maxApprovals, err)
	}
	if err := os.Chmod(filepath.Dir(at), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := h.Trust().Approve(path, set); !errors.Is(err, ErrHome) {
		t.Errorf("others may write approvals: %v", err)
	}
}

// A link that leads to another policy later is another policy.
func TestI15_ApprovalIsOfTheRealFile(t *testing.T) {
	t.Parallel()
	h, path := aPolicy(t, taking)
	_, other := aPolicy(t, taking)
	link := filepath.Join(t.TempDir(), "link.toml")
	for i, to := range []string{path, other} {
		_ = os.Remove(link)
		if err := os.Symlink(to, link); err != nil {
			t.Fatal(err)
		}
		_, err := h.Trust().Admit(loaded(t, link), AdmitOptions{})
		e := lacks(t, err)
		if i == 0 {
			if err := h.Trust().Approve(link, e.All); err != nil {
				t.Fatal(err)
			}
			if _, err := h.Trust().Admit(loaded(t, path), AdmitOptions{}); err != nil {
				t.Errorf("by its own path: %v", err)
			}
		}
	}
}

// A sandbox with a name keeps its approval, and its file may take no more at the next start.
func TestI15_NamedSandboxesKeepTheirApproval(t *testing.T) {
	t.Parallel()
	h, path := aPolicy(t, taking)
	cfg := Config{Name: "web", Disk: 64 << 20, Policy: loaded(t, path), PolicyFile: path, Trust: true, Image: "dir:/nosuch"}
	if err := cfg.fill(); err != nil {
		t.Fatal(err)
	}
	admitted, err := h.Trust().Admit(cfg.Policy, AdmitOptions{Trust: true})
	if err != nil {
		t.Fatal(err)
	}
	lock, err := makeNamed(h, newStored("web", &cfg, &image.Image{Digest: "sha256:0"}, admitted))
	must(t, err)
	must(t, lock.Close())
	start := func() error {
		run, err := lockSettled(t.Context(), h, "web") // a program that another test starts has the lock until it is executed
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = run.lock.Close() }()
		_, _, _, err = prepareStart(t.Context(), h, run, StartOptions{})
		return err
	}
	var missing *GrantsError
	if err := start(); errors.As(err, &missing) {
		t.Errorf("it asks again: %v", err)
	}
	if err := os.WriteFile(path, []byte(taking+"[tls]\nvia = \"http://10.0.0.1:3128\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if e := lacks(t, start()); len(e.New) != 1 || e.New[0].Kind != grants.Proxy {
		t.Errorf("%v", e.New)
	}
}

func TestI15_ReloadsTakeNoMore(t *testing.T) {
	t.Parallel()
	h, path := aPolicy(t, taking)
	first, err := h.Trust().Admit(loaded(t, path), AdmitOptions{Trust: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := first.Reload(loaded(t, path)); err != nil {
		t.Errorf("the same: %v", err)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(taking, "TAKEN", "HOME", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	set, err := h.Trust().Grants(loaded(t, path))
	if err == nil {
		err = h.Trust().Approve(path, set)
	}
	if err != nil {
		t.Fatal(err)
	}
	if p, err := first.Reload(loaded(t, path)); err == nil || !strings.Contains(err.Error(), "variable HOME") {
		t.Errorf("%+v, %v", p, err)
	}
}

// An image that a policy names gets the user's credentials where that is approved, and under a floor only if the
// floor names it.
func TestI15_PolicyImagesNeedApprovalForCredentials(t *testing.T) {
	t.Parallel()
	const named = "version = 1\n[sandbox]\nimage = \"registry.example/x:1\"\n"
	h, path := aPolicy(t, named)
	credentials := func(o AdmitOptions) bool {
		t.Helper()
		a, err := h.Trust().Admit(loaded(t, path), o)
		if err != nil {
			t.Fatal(err)
		}
		return a.Credentials
	}
	silent, naming := policies.Default(), policies.Default()
	naming.Sandbox.Image = "registry.example/x:1"
	if credentials(AdmitOptions{}) || !credentials(AdmitOptions{Trust: true}) || credentials(AdmitOptions{Trust: true, Floor: silent}) || !credentials(AdmitOptions{Floor: naming}) {
		t.Error("unapproved")
	}
	if a, err := h.Trust().Admit(loaded(t, path), AdmitOptions{}); err != nil || len(a.Grants) != 0 {
		t.Errorf("nothing was approved, and is %v (%v)", a.Grants, err)
	}
	set, err := h.Trust().Grants(loaded(t, path))
	if err == nil {
		err = h.Trust().Approve(path, set)
	}
	if err != nil {
		t.Fatal(err)
	}
	if !credentials(AdmitOptions{}) || credentials(AdmitOptions{Floor: silent}) {
		t.Error("approved")
	}
}

// TestI15_FilesNeedEveryGrantApproved: each thing that a file can take needs its user's approval. The twin is the same
// policy made in code.
func TestI15_FilesNeedEveryGrantApproved(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	dir := t.TempDir()
	for what, text := range map[string]string{
		"a variable": "[[egress.allow]]\nhosts = [\"a.example\"]\n[secrets.X]\nfrom = \"env:HOME\"\nhosts = [\"a.example\"]\nin = [\"basic\"]\n",
		"an image":   "[sandbox]\nimage = \"dir:" + dir + "\"\n", "a range": "[[egress.allow]]\ncidrs = [\"10.0.0.0/8\"]\nports = [443]\nprivate = true\n",
		"a range of a name": "[[egress.allow]]\nhosts = [\"a.example\"]\nwithin = [\"10.0.0.0/8\"]\n", "a target": "[hosts]\n\"a.example\" = \"127.0.0.1:80\"\n",
		"a resolver": "[dns]\nservers = [\"udp://192.0.2.1\"]\n", "a proxy": "[tls]\nvia = \"http://192.0.2.1:3128\"\n",
		"roots":                "[[tls.extra_ca]]\nfile = \"ca.pem\"\nhosts = [\"a.example\"]\n",
		"an agent's directory": "[agent]\ndirectories = [\"" + dir + ":/work\"]\n", "an agent's image": "[agent]\nimages = [\"dir:" + dir + "\"]\n",
	} {
		path := filepath.Join(t.TempDir(), "p.toml")
		must(t, os.WriteFile(path, []byte("version = 1\n"+text), 0o600))
		p := loaded(t, path)
		if _, err := h.Trust().Admit(p, AdmitOptions{}); KindOf(err) != KindGrants {
			t.Errorf("%s: %v, want a *GrantsError", what, err)
		}
		made := *p
		made.Path = ""
		if _, err := h.Trust().Admit(&made, AdmitOptions{}); err != nil {
			t.Errorf("%s, made in code: %v", what, err)
		}
	}
}
