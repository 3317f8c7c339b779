//go:build linux

package agentd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/msb-project/msb/agentd/agentclient"
)

// TestStagedProgramsStartAsOthersDo starts programs by way of the agent's own: those that may be in a directory of the host.
func TestStagedProgramsStartAsOthersDo(t *testing.T) {
	dir := t.TempDir()
	// To a path that is relative the agent can't tell the mount.
	for name, text := range map[string]string{
		"script": "#!./sh\necho \"$0 $# $2 $X\" >&2; ulimit -n; cat; exit 7\n", "none": "text\n", "missing": "#!./missing-too\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/bin/sh", filepath.Join(dir, "sh")); err != nil {
		t.Fatal(err)
	}
	t.Run("staged", func(t *testing.T) {
		s := dial(t, agentclient.Options{}, func(s *server) { s.carries.Store(true) })
		got := s.run(t, agentclient.ExecOptions{
			Argv: []string{dir + "/script", "a", "b c"}, Dir: dir, Env: []string{"X=y"}, Stdin: strings.NewReader("in"),
			Rlimits: []agentclient.Rlimit{{Name: "nofile", Soft: 77, Hard: 78}},
		})
		if got.Code != 7 || got.out != "77\nin" || got.err != dir+"/script 2 b c y\n" {
			t.Errorf("got %+v", got)
		}
		for name, code := range exitCodes {
			got := s.run(t, agentclient.ExecOptions{Argv: []string{dir + "/" + name}, Dir: dir})
			if got.Code != code || got.StartError != agentclient.Started || !strings.Contains(got.err, dir+"/"+name+": ") {
				t.Errorf("%s: got %+v", name, got)
			}
		}
	})
	t.Run("not staged", func(t *testing.T) {
		s := dial(t, agentclient.Options{})
		for name, code := range exitCodes {
			got := s.run(t, agentclient.ExecOptions{Argv: []string{dir + "/" + name}, Dir: dir})
			if got.Code != code || got.StartError == agentclient.Started {
				t.Errorf("%s: got %+v", name, got)
			}
		}
	})
}

var exitCodes = map[string]int{"none": 126, "missing": 127}
