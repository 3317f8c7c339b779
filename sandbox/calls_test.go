package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/sandbox/internal/state"
)

// TestI11_CallsAreBounded: the newest stay, in two files that only the user may read, and go with the sandbox.
func TestI11_CallsAreBounded(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	must(t, Create(t.Context(), Config{Home: h.Dir(), Name: "a", Disk: 64 << 20}))
	const calls = 3000
	pad := strings.Repeat("x", 200)
	for i := range calls {
		must(t, AddCall(h, "a", fmt.Appendf(nil, "%d %s", i, pad)))
	}
	lines, err := PastCalls(h, "a")
	must(t, err)
	if n := len(lines); n < 500 || n > 1400 || !bytes.HasPrefix(lines[n-1], []byte("2999 ")) {
		t.Errorf("%d lines, the last is %.20s", n, lines[n-1])
	}
	for i, line := range lines {
		if want := fmt.Sprintf("%d ", calls-len(lines)+i); !bytes.HasPrefix(line, []byte(want)) {
			t.Fatalf("line %d is %.20s, want %s", i, line, want)
		}
	}
	for _, end := range []string{"", state.OlderCalls} {
		info, err := os.Stat(namedPath(h, "a", state.CallsFile) + end)
		if err != nil || info.Mode() != 0o600 || info.Size() > maxCallsFile+maxCall {
			t.Errorf("%v, %v", info, err)
		}
	}
	for _, line := range []string{strings.Repeat("x", maxCall+1), "a\nb"} {
		if AddCall(h, "a", []byte(line)) == nil {
			t.Errorf("%.10q is taken", line)
		}
	}
	must(t, AddCall(h, "a", bytes.Repeat([]byte("x"), maxCall)))
	must(t, h.Remove(t.Context(), "a"))
	if err := AddCall(h, "a", []byte("x")); err == nil {
		t.Error("a sandbox that is gone has calls")
	}
	if _, err := PastCalls(h, "a"); !errors.Is(err, ErrNoSandbox) {
		t.Error(err)
	}
}

// TestI13_CallsOutliveKills: a line that was cut short is the only one that is lost, and what isn't msb's is left alone.
func TestI13_CallsOutliveKills(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	must(t, Create(t.Context(), Config{Home: h.Dir(), Name: "a", Disk: 64 << 20}))
	file := namedPath(h, "a", state.CallsFile)
	must(t, AddCall(h, "a", []byte("one")))
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND, 0)
	must(t, err)
	_, err = f.WriteString("\nhal")
	must(t, err)
	must(t, AddCall(h, "a", []byte("three")))
	if lines, err := PastCalls(h, "a"); err != nil || fmt.Sprintf("%s", lines) != "[one hal three]" {
		t.Errorf("%s, %v", lines, err)
	}
	must(t, unix.Flock(int(f.Fd()), unix.LOCK_EX)) // as a process that was stopped in the middle
	if err := AddCall(h, "a", []byte("four")); !errors.Is(err, errCallsBusy) {
		t.Errorf("while it is held: %v", err)
	}
	must(t, f.Close())
	must(t, os.Remove(file))
	must(t, os.Symlink("/etc/hostname", file))
	if err := AddCall(h, "a", []byte("x")); err == nil {
		t.Error("a link is followed")
	}
	if _, err := PastCalls(h, "a"); err == nil {
		t.Error("a link is read")
	}
	must(t, os.Remove(file))
	must(t, unix.Mkfifo(file, 0o600)) // which has no reader, and would be waited for without end
	if err := AddCall(h, "a", []byte("x")); err == nil {
		t.Error("a pipe is written to")
	}
}

// TestI13_ManyServersAddCalls at once, and lose none, also while files are set aside.
func TestI13_ManyServersAddCalls(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	must(t, Create(t.Context(), Config{Home: h.Dir(), Name: "a", Disk: 64 << 20}))
	pad := strings.Repeat("x", 2000)
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for n := range 25 { // 200 kB: more than a file, less than two
				for AddCall(h, "a", fmt.Appendf(nil, "%d-%d %s", i, n, pad)) != nil { // a busy machine
				}
			}
		})
	}
	all.Wait()
	lines, err := PastCalls(h, "a")
	if err != nil || len(lines) != 100 {
		t.Errorf("%d lines, %v", len(lines), err)
	}
}
