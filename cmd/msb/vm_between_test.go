//go:build vmtest

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestI15_VMSandboxesConnectToEachOther by a name of [hosts], where both policies say so. In the twins one of them
// doesn't, and neither the other's address nor its published port leads there.
func TestI15_VMSandboxesConnectToEachOther(t *testing.T) {
	dir, env := otherHome(t)
	msb := func(args ...string) result { return finish(t, command(t, env, args...)) }
	policy := func(name, text string) string {
		file := filepath.Join(t.TempDir(), name+".toml")
		if err := os.WriteFile(file, []byte("version = 1\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
		if r := msb("policy", "trust", file); r.code != 0 {
			t.Fatal(r.err)
		}
		return file
	}
	run := func(name, policyFile string) {
		msb("run", "--vm", "qemu", "-q", "-d", "--name", name, "--policy", policyFile, "--", "httpd", "-f", "-h", "/etc").want(t, 0, name+"\n")
	}
	const toDB = "[hosts]\n\"db.internal\" = \"sandbox:db:80\"\n"
	run("db", policy("db", "[[ingress.allow]]\nname = \"app\"\nsandboxes = [\"web\"]\nports = [80]\n"))
	run("web", policy("web", toDB))
	run("worm", policy("worm", toDB))
	get := func(from, url string) result { return msb("exec", from, "--", "wget", "-q", "-T", "5", "-O", "-", url) }
	eventually(t, "an answer of the other sandbox", func() bool {
		return strings.TrimSpace(get("web", "http://db.internal/hostname").out) == "db"
	})
	for from, url := range map[string]string{"worm": "http://db.internal/hostname", "db": "http://db.internal/hostname", "web": "http://192.168.127.2:81/hostname"} {
		if r := get(from, url); r.code == 0 {
			t.Errorf("%s reaches %s: %q", from, url, r.out)
		}
	}
	if log, err := os.ReadFile(filepath.Join(dir, "sandboxes", "db", "audit.jsonl")); err != nil || !strings.Contains(string(log), `"peer":"worm"`) {
		t.Errorf("the log of the one that was called says nothing of worm (%v):\n%s", err, log)
	}
	msb("stop", "db").want(t, 0, "db\n")
	if r := get("web", "http://db.internal/hostname"); r.code == 0 {
		t.Errorf("a sandbox that was stopped answers %q", r.out)
	}
	msb("rm", "-f", "db", "web", "worm")
	nothingLeft(t, dir)
}
