package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/msb-project/msb/capture"
	"github.com/msb-project/msb/sandbox"
)

// The sandbox is made and does not start, since another one writes to its capture: what stays is what the next start
// has.
func TestEnvironmentStaysWithASandboxThatHasAName(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	home, pcap := filepath.Join(dir, "home"), filepath.Join(dir, "link.pcapng")
	busy, err := capture.Create(pcap, capture.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = busy.Close() }()
	env := []string{sandbox.EnvHome + "=" + home, "PASSED=on"}
	flags := []string{"-q", "-e", "KEPT=a b", "-e", "PASSED", "-e", "UNSET_HERE", "--disk", "64M", "--pcap", pcap}
	for name, args := range map[string][]string{
		"ran": {"run", "--name", "ran"}, "detached": {"run", "-d", "--name", "detached"}, "created": {"create"},
	} {
		args = append(args, flags...)
		if name == "created" {
			args = append(args, name)
		}
		if got := msb(t, env, args...); name != "created" && (got.code == 0 || !strings.Contains(got.err, pcap)) {
			t.Errorf("%s: %+v, want a start that lacks its capture", name, got)
		}
		path := filepath.Join(home, "sandboxes", name, "sandbox.json")
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Fatalf("%v %v, want a file for its owner alone", info, err)
		}
		var state struct{ Env []string }
		if b, err := os.ReadFile(path); err != nil || json.Unmarshal(b, &state) != nil {
			t.Fatal(err)
		}
		if want := []string{"KEPT=a b", "PASSED=on"}; !slices.Equal(state.Env, want) {
			t.Errorf("%s: kept %q, want %q", name, state.Env, want)
		}
	}
}
