package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/msb-project/msb/sandbox"
)

// TestSSHNamesWhatIsMissing asks for sandboxes that are not there, and for ssh where it is not installed.
func TestSSHNamesWhatIsMissing(t *testing.T) {
	home := []string{sandbox.EnvHome + "=" + filepath.Join(t.TempDir(), "home")}
	for _, c := range []struct {
		env  []string
		args []string
		code int
		want string
	}{
		{args: []string{"ssh"}, code: exitOther, want: "msb ls"},
		{args: []string{"ssh", "x", "-v"}, code: exitOther, want: "flags go before"},
		{args: []string{"ssh", "x.msb"}, code: exitSandbox, want: "write msb ssh x; ssh itself knows x.msb by what msb ssh-config prints"},
		{args: []string{"ssh", "nobody@x"}, code: exitSandbox, want: "use ssh nobody@x.msb with what msb ssh-config prints, or msb shell --user nobody x"},
		{args: []string{"ssh", "nobody@x.msb"}, code: exitSandbox, want: "use ssh nobody@x.msb with"},
		{args: []string{"ssh", "x@Y"}, code: exitSandbox, want: "lower-case"},
		{args: []string{"ssh", "x"}, env: []string{"PATH=" + t.TempDir()}, code: exitOther, want: "openssh-client"},
		{args: []string{"ssh-config", "x"}, code: exitSandbox, want: "msb ls"},
		{args: []string{"ssh-proxy", "x"}, code: exitSandbox, want: "msb ls"},
	} {
		got := msb(t, append(home[:1:1], c.env...), c.args...)
		if got.code != c.code || !strings.Contains(got.err, c.want) || got.out != "" {
			t.Errorf("%q: %+v", c.args, got)
		}
	}
}

// TestSSHConfigIsReadBySSH prints the configuration of a sandbox in a directory with a space, and has ssh read it.
func TestSSHConfigIsReadBySSH(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "my 100% home")
	env := []string{sandbox.EnvHome + "=" + dir}
	if got := msb(t, env, "create", "-q", "--no-net", "box"); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	got := msb(t, env, "ssh-config")
	if got.code != 0 || got.err != "" || !strings.Contains(got.out, "\nHost box.msb\n") {
		t.Fatalf("%+v", got)
	}
	for _, file := range []string{"ssh_host_key", "ssh_client_key", "ssh_known_hosts"} {
		if info, err := os.Stat(filepath.Join(dir, "sandboxes", "box", file)); err != nil || info.Mode() != 0o600 {
			t.Errorf("%s: %v, %v", file, info, err)
		}
	}
	if ssh, err := exec.LookPath("ssh"); err == nil {
		out, err := exec.CommandContext(t.Context(), ssh, "-G", "-F", write(t, "config", got.out), "box.msb").CombinedOutput()
		for _, want := range []string{"user msb", "stricthostkeychecking true", "forwardagent no", "identityfile " + strings.ReplaceAll(dir, "%", "%%") + "/sandboxes/box/ssh_client_key"} {
			if err != nil || !strings.Contains(string(out), "\n"+want+"\n") {
				t.Errorf("no %q in %s: %v", want, out, err)
			}
		}
	}
	if got := msb(t, env, "rm", "box"); got.code != 0 {
		t.Errorf("%+v", got)
	}
	if left, err := os.ReadDir(filepath.Join(dir, "sandboxes")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
