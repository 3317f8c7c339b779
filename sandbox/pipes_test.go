package sandbox

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/internal/joblog"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// TestI13_PipesInStateBlockNobody: where a file of a sandbox's is a pipe, what read or wrote it waited for ever. The
// twins are the files themselves.
func TestI13_PipesInStateBlockNobody(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	j := k.run(t, "main", "write", "hello\n")
	_, err := j.Wait(t.Context())
	must(t, err)
	console := namedPath(k.home, "web", state.ConsoleLog)
	must(t, os.WriteFile(console, []byte("boot\n"), 0o600))
	if b, err := k.home.Console("web"); err != nil || string(b) != "boot\n" {
		t.Errorf("%q, %v", b, err)
	}
	if got := text(t, j, LogOptions{}); got != "hello\n" {
		t.Errorf("%q", got)
	}
	stored, err := state.ReadJob(k.Dir, "main")
	must(t, err)
	entries, err := os.ReadDir(k.Dir)
	must(t, err)
	pipes := []string{console, state.JobPath(k.Dir, "main")}
	for _, e := range entries {
		if joblog.IsSegment(e.Name()) {
			pipes = append(pipes, filepath.Join(k.Dir, e.Name()))
		}
	}
	if len(pipes) < 3 {
		t.Fatal("the job has no output")
	}
	log, err := j.Logs(t.Context(), LogOptions{})
	must(t, err)
	for _, path := range pipes {
		must(t, os.Remove(path))
		must(t, unix.Mkfifo(path, 0o600))
	}
	if b, err := k.home.Console("web"); err == nil || !strings.Contains(err.Error(), "is no file") || KindOf(err) != KindSandbox {
		t.Errorf("a pipe as the console's log: %q, %v", b, err)
	}
	if e, err := log.Next(); err == nil && len(e.Data) > 0 {
		t.Errorf("a pipe as a job's output: %q", e.Data)
	}
	must(t, log.Close())
	if err := stored.Update(k.Dir); err == nil {
		t.Error("an end was written into a pipe")
	}
}
