//go:build linux

package emuhost

import (
	"os"
	"path/filepath"
	"testing"
)

func TestRetriesAreNoted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "retries")
	t.Setenv(RetriesEnv, path)
	Retried(t, "it stood still\nconsole: …")
	Retried(t, "again")
	const want = "TestRetriesAreNoted: it stood still\nTestRetriesAreNoted: again\n"
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
}
