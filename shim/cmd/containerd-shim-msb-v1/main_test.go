package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// envRun makes this program the shim.
const envRun = "MSB_TEST_AS_SHIM"

func TestMain(m *testing.M) {
	if os.Getenv(envRun) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestCheckSettings exits with 1 and the reason for a file that the shim wouldn't take.
func TestCheckSettings(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"memory = \"1G\"\n": "", "memry = \"1G\"\n": "unknown key memry", "memory = \"lots\"\n": "memory"} {
		file := filepath.Join(t.TempDir(), "shim.toml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), os.Args[0], "check-settings", file)
		cmd.Env = append(os.Environ(), envRun+"=1")
		out, err := cmd.CombinedOutput()
		if (err == nil) != (want == "") || !strings.Contains(string(out), want) || want != "" && cmd.ProcessState.ExitCode() != 1 {
			t.Errorf("%q: %v, %s, want %q", text, err, out, want)
		}
	}
}

// TestNamesItself: containerd asks a runtime for its name.
func TestNamesItself(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-info")
	cmd.Env = append(os.Environ(), envRun+"=1")
	cmd.Stdin = strings.NewReader("")
	if out, err := cmd.Output(); err != nil || !strings.Contains(string(out), "io.containerd.msb.v1") {
		t.Errorf("%v, %q", err, out)
	}
}
