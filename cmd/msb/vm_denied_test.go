//go:build vmtest

package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/msb-project/msb/sandbox"
)

func TestVMDenialsAreSaidAtTheEnd(t *testing.T) {
	const script = "nslookup evil.example >/dev/null; wget -q -O - http://10.0.0.1/; wget -q -O - http://169.254.169.254/; exit 4"
	home := []string{sandbox.EnvHome + "=" + filepath.Join(t.TempDir(), "home")}
	msb := func(args ...string) result { t.Helper(); return finish(t, command(t, home, args...)) }
	defer func() { _ = command(t, home, "rm", "--force", "web").Run() }()
	msb("run", "--vm", "qemu", "--", "sh", "-c", script).says(t, 4, "3 denied: evil.example (no rule), 10.0.0.1:80 (special address), 169.254.169.254:80 (metadata address)",
		"allow with --allow evil.example:443 --allow 10.0.0.1:80/tcp+private", "this machine's own credentials", "all of them: --audit FILE")
	if got := msb("run", "--vm", "qemu", "-q", "--", "sh", "-c", script); strings.Contains(got.err, "denied") {
		t.Errorf("-q: %+v", got)
	}
	if got := msb("run", "--vm", "qemu", "--", "true"); strings.Contains(got.err, "denied") {
		t.Errorf("nothing was denied: %+v", got)
	}

	// One with a name keeps its log from run to run, until it is removed.
	msb("run", "--vm", "qemu", "--name", "web", "--", "sh", "-c", script).says(t, 4, "3 denied: evil.example (no rule)", "msb events web --denied")
	if got := msb("events", "web", "--denied"); got.code != 0 || strings.Count(got.out, "\n") != 4 || !strings.Contains(got.out, "evil.example") {
		t.Errorf("of one that is stopped: %+v", got)
	}
	msb("start", "-q", "web").want(t, 0, "web\n")
	follow := &running{Cmd: command(t, home, "events", "-f", "--json", "web"), ended: make(chan struct{})}
	follow.Stdout, follow.Stderr = &follow.out, &follow.err
	follow.start(t)
	msb("exec", "web", "wget", "-q", "-O", "-", "http://10.9.8.7/").says(t, 4, "")
	follow.out.await(t, `"dst":"10.9.8.7"`)
	msb("rm", "-f", "web").want(t, 0, "web\n")
	if got := follow.wait(t); got.code != 0 || got.err != "" || !strings.Contains(got.out, `"dst":"10.0.0.1"`) {
		t.Errorf("events -f: %+v", got)
	}
}
