package main

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/msb-project/msb/capture"
	"github.com/msb-project/msb/sandbox"
)

func TestNamedSandboxesKeepTheirEnvironment(t *testing.T) {
	t.Parallel()
	home := filepath.Join(t.TempDir(), "home")
	env := []string{sandbox.EnvHome + "=" + home, "PASSED=on"}
	if got := msb(t, env, "create", "-q", "-e", "KEPT=a b", "-e", "PASSED", "-e", "UNSET_HERE", "--disk", "64M", "web"); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	path := filepath.Join(home, "sandboxes", "web", "sandbox.json")
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v %v, want a file for its owner alone", info, err)
	}
	var state struct{ Env []string }
	if b, err := os.ReadFile(path); err != nil || json.Unmarshal(b, &state) != nil {
		t.Fatal(err)
	}
	if want := []string{"KEPT=a b", "PASSED=on"}; !slices.Equal(state.Env, want) {
		t.Errorf("kept %q, want %q", state.Env, want)
	}
	for name, want := range map[string][]string{"web": {"KEPT=a b"}, "": nil} { // msb run: of a name for every command, else for the one
		var f runFlags
		f.register(&cobra.Command{})
		f.name, f.env = name, []string{"KEPT=a b", "UNSET_HERE"}
		if cfg, _, err := f.config(newUI(io.Discard, io.Discard), nil, -1); err != nil || !slices.Equal(cfg.Env, want) {
			t.Errorf("run --name %q: %q, %v; want %q", name, cfg.Env, err, want)
		}
	}
}

// TestI13_FailedRunsLeaveNoSandbox: another one writes to its capture. The twin is one that was made before.
func TestI13_FailedRunsLeaveNoSandbox(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	home, pcap := filepath.Join(dir, "home"), filepath.Join(dir, "link.pcapng")
	busy, err := capture.Create(pcap, capture.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = busy.Close() }()
	env := []string{sandbox.EnvHome + "=" + home}
	if got := msb(t, env, "create", "-q", "--disk", "64M", "--pcap", pcap, "made"); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	for _, args := range [][]string{{"run", "--name", "web"}, {"run", "-d", "--name", "web"}, {"run", "-d"}, {"start", "made"}} {
		if args[0] == "run" {
			args = append(args, "-q", "--disk", "64M", "--pcap", pcap)
		}
		if got := msb(t, env, args...); got.code == 0 || !strings.Contains(got.err, pcap) {
			t.Errorf("%v: %+v, want a start that lacks its capture", args, got)
		}
		if all, err := os.ReadDir(filepath.Join(home, "sandboxes")); err != nil || len(all) != 1 || all[0].Name() != "made" {
			t.Errorf("%v: %v, %v; want the one that was made before", args, all, err)
		}
	}
}
