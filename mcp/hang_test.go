package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/sandbox"
)

// hung is a guest that never answers one kind of call, as one that has a file system of its own at /tmp can.
type hung struct {
	t     *testing.T
	at    string
	stuck chan struct{} // closed at the first such call
	once  *sync.Once
}

func (h hung) do(ctx context.Context, call string) error {
	if call != h.at {
		return nil
	}
	h.once.Do(func() { close(h.stuck) })
	if ctx.Done() == nil {
		h.t.Errorf("%s is waited for without an end", call)
		return errBoom
	}
	<-ctx.Done()
	return ctx.Err()
}

type hungMachine struct{ hung }

func (m hungMachine) Files() files                { return hungFiles(m) }
func (m hungMachine) Denied() audit.DenialSummary { return audit.DenialSummary{} }
func (m hungMachine) Close() error                { return nil }
func (m hungMachine) Exec(ctx context.Context, _ sandbox.ExecOptions) (sandbox.ExitStatus, error) {
	return sandbox.ExitStatus{}, m.do(ctx, "exec")
}
func (m hungMachine) Copy(ctx context.Context, _, _, _ string) (agentclient.TreeReport, error) {
	return agentclient.TreeReport{}, m.do(ctx, "copy")
}
func (m hungMachine) StartJob(ctx context.Context, _ string, _ sandbox.ExecOptions) (string, error) {
	return "1", m.do(ctx, "job")
}
func (m hungMachine) Stats(ctx context.Context) (agentclient.Stats, error) {
	return agentclient.Stats{}, m.do(ctx, "stats")
}

type hungFiles struct{ hung }

// hungReader is a file of which nothing comes.
type hungReader struct {
	hung
	ctx context.Context
}

func (r hungReader) Read([]byte) (int, error) { return 0, errors.Join(r.do(r.ctx, "read"), io.EOF) }
func (hungReader) Close() error               { return nil }

func (f hungFiles) Open(ctx context.Context, _ string, _, _ int64) (io.ReadCloser, error) {
	return hungReader{f.hung, ctx}, f.do(ctx, "open")
}
func (f hungFiles) Stat(ctx context.Context, _ string, _ bool) (agentclient.FileInfo, error) {
	return agentclient.FileInfo{}, f.do(ctx, "stat")
}
func (f hungFiles) ReadDir(ctx context.Context, _ string) ([]agentclient.FileInfo, error) {
	return nil, f.do(ctx, "list")
}
func (f hungFiles) Mkdir(ctx context.Context, _ string, _ agentclient.MkdirOptions) error {
	return f.do(ctx, "mkdir")
}
func (f hungFiles) WriteFile(ctx context.Context, _ string, _ io.Reader, _ agentclient.WriteOptions) (agentclient.FileInfo, error) {
	return agentclient.FileInfo{}, f.do(ctx, "write")
}
func (f hungFiles) Remove(ctx context.Context, _ string, _ bool) error { return f.do(ctx, "remove") }
func (f hungFiles) Rename(ctx context.Context, _, _ string) error      { return f.do(ctx, "rename") }
func (f hungFiles) Symlink(ctx context.Context, _, _ string) error     { return f.do(ctx, "symlink") }

type hungRunner struct{ hungMachine }

func (r hungRunner) connect(ctx context.Context, _ *sandbox.Status) (machine, error) {
	return r.hungMachine, r.do(ctx, "connect")
}
func (r hungRunner) start(ctx context.Context, _ *sandbox.Status) (machine, error) {
	return r.hungMachine, r.do(ctx, "start")
}
func (hungRunner) stop(context.Context, *sandbox.Status) error { return nil }
func (r hungRunner) run(ctx context.Context, _ sandbox.Config) (machine, error) {
	return r.hungMachine, r.do(ctx, "run")
}

// TestI12_HungGuestsHoldNoCallUp: whatever a guest doesn't answer, a cancelled call ends, and so does the server, which
// waits for the calls under way.
func TestI12_HungGuestsHoldNoCallUp(t *testing.T) {
	t.Parallel()
	shared := t.TempDir()
	arguments := map[string]m{
		"sandbox_exec": {"command": "x"}, "sandbox_run": {"command": "x"}, "job": {"action": "start", "command": "x"}, "fs_search": {"path": "/a", "text": "x"}, "check_installed": {"programs": []string{"sh"}},
		"fs_upload": {"from": shared, "to": "/a"}, "fs_download": {"from": "/a", "to": shared}, "sandbox_run_code": {"steps": []m{{"language": "sh", "code": "x"}}}, "sandbox_create": {"name": "web"},
		"fs_read": {"path": "/a"}, "fs_write": {"files": []m{{"path": "/a", "content": "x"}}}, "fs_list": {"path": "/a"}, "fs_stat": {"path": "/a"}, "fs_mkdir": {"path": "/a"}, "fs_rename": {"path": "/a", "to": "/b"},
		"fs_remove": {"path": "/a"}, "fs_append": {"path": "/a", "content": "x"}, "sandbox_start": {}, "sandbox_health": {}, "sandbox_install": {"packages": []string{"x"}}, "sandbox_metrics": {},
	}
	reached := map[string]bool{}
	for _, how := range []string{"cancel", "end of the server"} {
		p := serve(t, func(o *Options) {
			o.Tools, o.Sandboxes = []string{AllTools}, 10
			o.Directories = []sandbox.Directory{{Host: shared, Guest: "/shared", Writable: true}}
		})
		p.cleanup = time.Millisecond
		p.says(t, false, "sandbox_create", m{"name": "default"})
		for _, at := range []string{"connect", "start", "run", "exec", "copy", "job", "stats", "open", "read", "stat", "list", "mkdir", "write", "remove", "rename"} {
			for _, tool := range append(p.tools(), p.moreTools()...) {
				args, ok := arguments[tool.name]
				if !ok {
					continue
				}
				h := hung{t, at, make(chan struct{}), new(sync.Once)}
				p.runner, p.calls = hungRunner{hungMachine{h}}, newCalls()
				p.jobs.calls = p.calls
				raw, err := json.Marshal(args)
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() {
					defer close(done)
					_, _ = p.handler(tool)(ctx, &sdk.CallToolRequest{Params: &sdk.CallToolParamsRaw{Arguments: raw}})
				}()
				select {
				case <-h.stuck:
					reached[at] = true
				case <-done:
				}
				if how == "cancel" {
					cancel()
					<-done
				}
				p.calls.close()
				<-done
				cancel()
				if tool.name == "sandbox_create" {
					_ = p.opts.Home.Remove(t.Context(), "web") // where it did not start it is gone
				}
			}
		}
	}
	if len(reached) < 14 {
		t.Errorf("only %v were reached", reached)
	}
}
