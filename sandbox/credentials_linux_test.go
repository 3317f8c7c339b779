package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/msb-project/msb/internal/hostdir"
)

func TestCredentialsAreFoundAndHidden(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	holding := map[string]string{
		".env": "", "app/.env": "", ".env.local": "API_KEY=abcdefghij", "keys/odd[1]*.pem": "-----BEGIN RSA PRIVATE KEY-----\n", ".ssh/id_ed25519": "",
		"a/b/c/d/e/f/.env": "", "Upper/.ENV": "", "late/.npmrc": strings.Repeat("# nothing\n", maxCredential/10-10) + "//r/:_authToken=x",
		".aws/credentials": "", ".git/config": "[remote \"o\"]\n\turl = https://me:token@example.com/x\n", ".npmrc": "//r/:_authToken=x", "a/.docker/config.json": `{"auths": {"r": {"auth": "x"}}}`,
	}
	harmless := map[string]string{
		".env.example": "API_KEY=\n", "cert.pem": "-----BEGIN CERTIFICATE-----\n", "sub/.git/config": "[remote \"o\"]\n\turl = git@example.com:x\n", "credentials": "",
		".kube/other": "", "node_modules/x/.env": "", ".docker/config.json": "{}", "id_rsa.pub": "",
		"later.key": strings.Repeat("# nothing\n", maxCredential/10+1) + "-----BEGIN PRIVATE KEY-----\n",
	}
	for _, files := range []map[string]string{holding, harmless} {
		for p, text := range files {
			p = filepath.Join(dir, p)
			if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "id_rsa")); err != nil {
		t.Fatal(err)
	}
	found, err := credentials(dir)
	var want []string
	for p := range holding {
		want = append(want, p)
	}
	slices.Sort(want)
	slices.Sort(found)
	if err != nil || !slices.Equal(found, want) {
		t.Errorf("found %q, %v; want %q", found, err, want)
	}

	var told []string
	c := &Config{Directories: []Directory{{Host: dir, Guest: "/work"}}, Hide: []string{".env", ".ssh"}, Notice: func(s string) { told = append(told, s) }}
	if got := c.hidden(); !slices.Equal(got, c.Hide) {
		t.Errorf("hidden %q", got)
	}
	if len(told) != 1 || strings.Contains(told[0], "app/.env") || strings.Contains(told[0], "id_ed25519") || !strings.Contains(told[0], "and 2 more; --hide-credentials") {
		t.Errorf("told %q", told)
	}
	told, c.HideCredentials, c.Hide = nil, true, []string{"own"}
	patterns := c.hidden()
	if !hostdir.NewHiding(patterns).Hides("own") {
		t.Errorf("what is to be hidden anyway is not in %q", patterns)
	}
	for p := range holding {
		if !hostdir.NewHiding(patterns).Hides(p) {
			t.Errorf("%s is not hidden by %q", p, patterns)
		}
	}
	for p := range harmless {
		if hostdir.NewHiding(patterns).Hides(p) != (p == "node_modules/x/.env") {
			t.Errorf("%s is hidden", p)
		}
	}
	if _, err := hostdir.New(dir, hostdir.Options{Hide: patterns}); err != nil || len(told) > 0 {
		t.Errorf("%v, told %q", err, told)
	}
}

func TestI11_CredentialSearchIsBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	deep := filepath.Join(dir, strings.Repeat("d/", maxDepth+1))
	if err := os.MkdirAll(deep, 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range maxShown * 2 {
		if err := os.WriteFile(filepath.Join(deep, fmt.Sprintf("%d.env", i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(deep, ".env"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if found, err := credentials(dir); err != nil || len(found) > 0 {
		t.Errorf("found %q, %v", found, err)
	}
}
