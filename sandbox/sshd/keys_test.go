package sshd

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/msb-project/msb/sandbox/internal/state"
)

// TestI18_SSHKeysAreTheSandboxesOwn makes the keys of two sandboxes, one of them in several processes at once.
func TestI18_SSHKeysAreTheSandboxesOwn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	made := make([]*Keys, 8)
	var all sync.WaitGroup
	for i := range made {
		all.Go(func() {
			k, err := OpenKeys(dir)
			if err != nil {
				t.Error(err)
			}
			made[i] = k
		})
	}
	all.Wait()
	other, err := OpenKeys(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	same := func(a, b *Keys) bool {
		return bytes.Equal(a.host.PublicKey().Marshal(), b.host.PublicKey().Marshal()) || bytes.Equal(a.client.Marshal(), b.client.Marshal())
	}
	for _, k := range made {
		if !bytes.Equal(k.host.PublicKey().Marshal(), made[0].host.PublicKey().Marshal()) || !bytes.Equal(k.client.Marshal(), made[0].client.Marshal()) {
			t.Error("processes of one sandbox use different keys")
		}
		if same(k, other) || bytes.Equal(k.host.PublicKey().Marshal(), k.client.Marshal()) {
			t.Error("a key is used twice")
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 3 {
		t.Fatalf("the directory holds %v, %v", entries, err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || info.Mode() != 0o600 {
			t.Errorf("%s: %v, %v", e.Name(), info.Mode(), err)
		}
		if form, ok := state.NamedForm(e.Name(), 0); form != nil || !ok {
			t.Errorf("msb rm leaves %s", e.Name())
		}
		if _, ok := state.NamedForm("."+e.Name()+"123", 0); !ok {
			t.Errorf("msb rm leaves a half-written %s", e.Name())
		}
	}
	_, hosts, key, _, _, err := ssh.ParseKnownHosts(mustRead(t, made[0].knownHostsFile))
	if err != nil || len(hosts) != 1 || hosts[0] != "*" || !bytes.Equal(key.Marshal(), made[0].host.PublicKey().Marshal()) {
		t.Errorf("known hosts: %v, %v", hosts, err)
	}
}

func mustRead(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestKnownHostsFollowTheHostKey makes another host key, as the error about a damaged one asks for, and damages the file that
// the client knows the server by: without the server's key in it, no client would connect again.
func TestKnownHostsFollowTheHostKey(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, err := OpenKeys(dir)
	if err != nil {
		t.Fatal(err)
	}
	line := mustRead(t, first.knownHostsFile)
	if err := os.Remove(filepath.Join(dir, state.SSHHostKey)); err != nil {
		t.Fatal(err)
	}
	for _, before := range []string{string(line), "* x\n", ""} {
		if err := os.WriteFile(first.knownHostsFile, []byte(before), 0o600); err != nil {
			t.Fatal(err)
		}
		k, err := OpenKeys(dir)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Equal(k.host.PublicKey().Marshal(), first.host.PublicKey().Marshal()) {
			t.Fatal("the host key that was removed is used again")
		}
		_, _, known, _, _, err := ssh.ParseKnownHosts(mustRead(t, k.knownHostsFile))
		if err != nil || !bytes.Equal(known.Marshal(), k.host.PublicKey().Marshal()) {
			t.Errorf("after %q the client knows another key than the server's: %v", before, err)
		}
	}
}

// TestDamagedKeysAreNamed: a damaged key is an error with a remedy, and a link is not followed.
func TestDamagedKeysAreNamed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := OpenKeys(dir); err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(dir, state.SSHHostKey)
	if err := os.WriteFile(key, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenKeys(dir); err == nil || !strings.Contains(err.Error(), key) || !strings.Contains(err.Error(), "remove the file") {
		t.Errorf("got %v", err)
	}
	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, state.SSHClientKey), key); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenKeys(dir); err == nil {
		t.Error("a link was followed")
	}
}

// TestConfigurationsQuotePaths writes paths that ssh_config reads as they are, and refuses others.
func TestConfigurationsQuotePaths(t *testing.T) {
	t.Parallel()
	c := &Client{Keys: &Keys{clientFile: "/h m/100%/k", knownHostsFile: "/h/n"}, Proxy: []string{"/b in/msb", "ssh-proxy", "x"}}
	got, err := c.Host("x")
	if err != nil || !strings.HasPrefix(got, "Host x.msb\n  User msb\n") ||
		!strings.Contains(got, "\n  IdentityFile \"/h m/100%%/k\"\n") || !strings.Contains(got, "\n  ProxyCommand '/b in/msb' 'ssh-proxy' 'x'\n") {
		t.Errorf("got %s, %v", got, err)
	}
	for _, bad := range []string{`a"b`, "a'b", `a\b`, "a$b", "a`b", "a\nb"} {
		for _, c := range []*Client{
			{Keys: &Keys{clientFile: bad}}, {Keys: &Keys{knownHostsFile: bad}}, {Keys: &Keys{}, Proxy: []string{bad}},
		} {
			if _, err := c.Host("x"); err == nil {
				t.Errorf("%q was written", bad)
			}
		}
	}
}
