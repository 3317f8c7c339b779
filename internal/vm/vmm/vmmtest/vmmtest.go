package vmmtest

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// Env names the program where there is no compiler: in the emulated host.
const Env = "MSB_TEST_VMM"

// Read returns vm/vmm of this tree, which is built once for each test process.
var Read = sync.OnceValues(func() ([]byte, error) {
	if path := os.Getenv(Env); path != "" {
		return os.ReadFile(path)
	}
	dir, err := os.MkdirTemp("", "msb-vmm-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	out := filepath.Join(dir, "vmm")
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", out, "github.com/msb-project/msb/internal/vm/vmm")
	if text, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go build: %w: %s", err, text)
	}
	return os.ReadFile(out)
})

// Program is a runner.Program of it.
func Program(t testing.TB) func() (io.ReadCloser, error) {
	t.Helper()
	b, err := Read()
	if err != nil {
		t.Fatal(err)
	}
	return func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }
}
