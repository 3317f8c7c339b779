package mcp

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/msb-project/msb/sandbox"
)

// frozenRunner connects when its call is over, and starts at once.
type frozenRunner struct{ *fakeRunner }

func (frozenRunner) connect(ctx context.Context, _ *sandbox.Status) (machine, error) {
	if _, bounded := ctx.Deadline(); !bounded {
		return nil, errBoom
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestTimeoutsBoundConnecting to a sandbox that is up. One that isn't, the twin, may take longer to start.
func TestTimeoutsBoundConnecting(t *testing.T) {
	t.Parallel()
	p := serve(t, nil)
	steps := []m{{"language": "sh", "code": "x"}}
	p.says(t, false, "sandbox_exec", m{"command": "x"}, "exit code 0")
	short, err := os.MkdirTemp("", "msb") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(short) }()
	l, err := net.Listen("unix", filepath.Join(short, "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }() // nobody accepts
	dir := filepath.Join(p.opts.Home.Dir(), "sandboxes", "default")
	if err := os.Rename(filepath.Join(short, "s"), filepath.Join(dir, "control.sock")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		run  string
		want string
	}{{`{"started":"2026-01-01T00:00:00Z"}`, "boom"}, {`{"started":"2026-01-01T00:00:00Z","info":{"id":"x"}}`, "did not answer within 1ms, the timeout"}} {
		if err := os.WriteFile(filepath.Join(dir, "run.json"), []byte(c.run), 0o600); err != nil {
			t.Fatal(err)
		}
		p.runner = frozenRunner{p.fake}
		p.says(t, true, "sandbox_exec", m{"command": "x", "timeout": 0.001}, c.want)
		p.says(t, true, "sandbox_run_code", m{"steps": steps, "timeout": 0.001}, c.want)
		if c.want == "boom" {
			continue
		}
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		if _, _, err := p.useWithin(cancelled, "", time.Hour); !errors.Is(err, context.Canceled) {
			t.Errorf("a cancelled call: %v", err)
		}
		p.runner = realRunner{p.opts.Home, "", &sessions{keep: time.Hour}} // which waits for half a minute by itself
		p.says(t, true, "sandbox_exec", m{"command": "x", "timeout": 0.001}, c.want)
	}
}
