package policies

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A FIFO made the load, and with it a reload, wait for a writer that never came.
func TestI12_IrregularPolicyFilesAreRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo.toml")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link.toml")
	if err := os.Symlink(fifo, link); err != nil {
		t.Fatal(err)
	}
	including := filepath.Join(dir, "including.toml")
	if err := os.WriteFile(including, []byte("version = 1\ninclude = [\"fifo.toml\"]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ path, remedy string }{
		"fifo":         {fifo, "write the policy to a file"},
		"link to fifo": {link, "write the policy to a file"},
		"included":     {including, "write the policy to a file"},
		"device":       {os.DevNull, "write the policy to a file"},
		"directory":    {dir, "name the file in it"},
	} {
		if _, err := Load(c.path); err == nil || !strings.Contains(err.Error(), c.remedy) {
			t.Errorf("%s: error %v, want one with %q", name, err, c.remedy)
		}
	}
}

func TestPolicyFileReadsAreBounded(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "long.toml")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 1<<40); err != nil { // a sparse terabyte: reading it all would end the test
		t.Fatal(err)
	}
	data, err := readFile(path)
	if err != nil || len(data) != maxFile+1 {
		t.Errorf("%d bytes, %v; want %d", len(data), err, maxFile+1)
	}
}
