//go:build vmtest

package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/msb-project/msb/internal/vm/vmtest"
)

// clientPackages are the HTTPS clients of Debian that the sandbox's CA is tried with. ant is Java's: its
// task get needs no compiler.
const clientPackages = "ca-certificates,curl,wget,python3,nodejs,openjdk-17-jre-headless,ca-certificates-java,ant"

// debianLayer makes a Debian with these packages from the mirror that this machine's apt uses, as a
// compressed tar. It takes two minutes, so it is kept in the user's cache.
func debianLayer(t *testing.T) string {
	t.Helper()
	recipe := []string{
		"--variant=essential", "--format=tar", "--include=" + clientPackages,
		"--setup-hook=mkdir -p \"$1\"/usr/share/man/man1 \"$1\"/usr/share/man/man7", // Java's scripts link into them
		"--aptopt=Acquire::Languages \"none\"", "--aptopt=APT::Install-Recommends \"false\"",
		"--dpkgopt=force-unsafe-io", "--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-exclude=/usr/share/locale/*",
		"bookworm",
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(cache, "msb-test")
	key := sha256.Sum256([]byte(strings.Join(recipe, "\n")))
	path := filepath.Join(dir, fmt.Sprintf("debian-%x.tar.gz", key[:8]))
	if _, err := os.Stat(path); err == nil {
		return path
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	half := fmt.Sprintf("%s.%d", path, os.Getpid())
	defer os.Remove(half)
	make := exec.CommandContext(t.Context(), "sh", "-c", `out=$1; shift; { mmdebstrap "$@" - || kill $$; } | gzip -1 > "$out"`, "sh", half)
	make.Args = append(make.Args, recipe...)
	if text, err := make.CombinedOutput(); err != nil {
		t.Fatalf("mmdebstrap (packages mmdebstrap and uidmap): %v\n%s", err, text)
	}
	if err := os.Rename(half, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// guestClients fetch $URL with the header "Authorization: Bearer $TOKEN" and print the body. Where the processor is emulated,
// Java takes half of the time if it compiles nothing.
var guestClients = map[string]string{
	"curl":   `curl -sS -H "Authorization: Bearer $TOKEN" "$URL"`,
	"wget":   `wget -q -O - --header="Authorization: Bearer $TOKEN" "$URL"`,
	"Python": `python3 -c 'import os, urllib.request as u; e = os.environ; print(u.urlopen(u.Request(e["URL"], headers={"Authorization": "Bearer " + e["TOKEN"]})).read().decode())'`,
	"Node":   `node -e 'require("https").get(process.env.URL, {headers: {Authorization: "Bearer " + process.env.TOKEN}}, r => r.pipe(process.stdout)).on("error", e => { console.error(e); process.exit(1) })'`,
	"fetch":  `node -e 'fetch(process.env.URL, {headers: {Authorization: "Bearer " + process.env.TOKEN}}).then(r => r.text()).then(console.log, e => { console.error(e); process.exit(1) })'`,
	"Go":     `msb-tour get -H "Authorization: Bearer $TOKEN" "$URL"`,
	"Java":   `ANT_OPTS='-Xint -XX:+UseSerialGC' ant -q -f /get.xml > /tmp/ant 2>&1 && cat /tmp/got || { cat /tmp/ant; exit 1; }`,
}

const antGet = `<project default="get"><property environment="env"/><target name="get">
<get src="${env.URL}" dest="/tmp/got"><header name="Authorization" value="Bearer ${env.TOKEN}"/></get>
</target></project>
`

func TestVMDebianClientsNeverSeeSecrets(t *testing.T) {
	host := serveRegistry(t)
	path := debianLayer(t)
	ref := push(t, host, "clients", runtime.GOARCH,
		v1.Config{Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin"}, Cmd: []string{"/bin/sh"}},
		func() (io.ReadCloser, error) { return os.Open(path) },
		tarOf(t, map[string]string{
			"usr/local/bin/msb-tour": contentOf(t, vmtest.Build(t, "github.com/msb-project/msb/agentd/guest/tour", false)),
			"get.xml":                antGet,
		}))
	policy, value := tokenForEcho(t)
	var script strings.Builder
	for name, line := range guestClients {
		fmt.Fprintf(&script, "echo '<%s>'; { %s; } 2>&1; echo \"status $? </%s>\"\n", name, line, name)
	}
	script.WriteString("echo '<seen>'; env; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'; echo \"token=$TOKEN\"; echo '</seen>'\n")
	sum := sha256.Sum256([]byte("Bearer " + value))
	want := hex.EncodeToString(sum[:])
	got := vmRun(t, "-q", "--policy", policy, "--memory", "1G", "-e", "URL=https://echo.msb.internal/", ref, "sh", "-c", script.String())
	if got.code != 0 || got.err != "" {
		t.Errorf("exit %d, said %q", got.code, got.err)
	}
	for name := range guestClients {
		if text := section(got.out, name); !strings.Contains(text, want) || !strings.Contains(text, "status 0") {
			t.Errorf("%s: want the digest of the value at the service and status 0, got\n%s", name, text)
		}
	}
	if strings.Contains(got.out, value) || !strings.Contains(got.out, "token=msb_") {
		t.Errorf("the guest saw\n%s", section(got.out, "seen"))
	}
}

// tokenForEcho writes a policy that lets a secret into requests to the built-in echo service, and sets the secret.
func tokenForEcho(t *testing.T) (policy, value string) {
	t.Helper()
	value = "the-real-value-of-the-token-5150"
	t.Setenv("VM_TEST_TOKEN", value)
	policy = write(t, "policy.toml", `version = 1
[[egress.allow]]
hosts = ["echo.msb.internal"]
protocol = "https"
methods = ["GET"]
[hosts]
"echo.msb.internal" = "builtin:echo"
[secrets.TOKEN]
from = "env:VM_TEST_TOKEN"
hosts = ["echo.msb.internal"]
in = ["header:Authorization"]
`)
	return policy, value
}

// section is what stands between <name> and </name>.
func section(text, name string) string {
	_, text, _ = strings.Cut(text, "<"+name+">")
	text, _, _ = strings.Cut(text, "</"+name+">")
	return text
}

func contentOf(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
