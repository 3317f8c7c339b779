package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox"
)

// fakeRunner takes the place of machines: state, policies and bounds are the real ones. TestI15_VMAnAgentsDay has the whole.
type fakeRunner struct {
	mu       sync.Mutex
	running  map[string]*fakeMachine
	runs     []sandbox.Config
	exec     func(ctx context.Context, o sandbox.ExecOptions) (sandbox.ExitStatus, error)
	denied   audit.DenialSummary
	startErr error
}

func (r *fakeRunner) connect(_ context.Context, st *sandbox.Status) (machine, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m, ok := r.running[st.Name]; ok {
		return m, nil
	}
	return nil, sandbox.ErrNotRunning
}

func (r *fakeRunner) start(_ context.Context, st *sandbox.Status) (machine, error) {
	name := st.Name
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.startErr != nil {
		return nil, r.startErr
	}
	if _, ok := r.running[name]; ok {
		return nil, sandbox.ErrRunning
	}
	r.running[name] = &fakeMachine{runner: r, files: fakeFiles{}}
	return r.running[name], nil
}

func (r *fakeRunner) stop(_ context.Context, st *sandbox.Status) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.running, st.Name)
	return nil
}

func (r *fakeRunner) run(_ context.Context, cfg sandbox.Config) (machine, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.runs = append(r.runs, cfg)
	return &fakeMachine{runner: r, files: fakeFiles{}}, nil
}

type fakeMachine struct {
	runner *fakeRunner
	files  fakeFiles
	jobs   []sandbox.ExecOptions
}

func (m *fakeMachine) Exec(ctx context.Context, o sandbox.ExecOptions) (sandbox.ExitStatus, error) {
	if m.runner.exec != nil {
		return m.runner.exec(ctx, o)
	}
	_, err := io.WriteString(o.Stdout, strings.Join(o.Argv, "|"))
	return sandbox.ExitStatus{}, err
}
func (m *fakeMachine) Files() files                { return m.files }
func (m *fakeMachine) Denied() audit.DenialSummary { return m.runner.denied }
func (m *fakeMachine) Stats(context.Context) (agentclient.Stats, error) {
	return agentclient.Stats{MemoryTotalBytes: 512 << 20, Processes: 7}, nil
}
func (m *fakeMachine) Copy(_ context.Context, from, dir, name string) (agentclient.TreeReport, error) {
	text, ok := m.files[from]
	if !ok {
		return agentclient.TreeReport{}, &fs.PathError{Op: "open", Path: from, Err: fs.ErrNotExist}
	}
	m.files[path.Join(dir, name)] = text
	return agentclient.TreeReport{Entries: 1, Bytes: int64(len(text))}, nil
}
func (m *fakeMachine) Close() error { return nil }
func (m *fakeMachine) StartJob(_ context.Context, name string, o sandbox.ExecOptions) (string, error) {
	m.jobs = append(m.jobs, o)
	if name == "" {
		name = "1"
	}
	return name, nil
}

// fakeFiles are files by their paths, and their modes by "mode of " and the path.
type fakeFiles map[string]string

func (f fakeFiles) Open(_ context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	text := f[name]
	text = text[min(offset, int64(len(text))):]
	return io.NopCloser(strings.NewReader(text[:min(length, int64(len(text)))])), nil
}

func (f fakeFiles) Stat(_ context.Context, name string, _ bool) (agentclient.FileInfo, error) {
	if _, ok := f[name]; !ok {
		return agentclient.FileInfo{}, &fs.PathError{Op: "stat", Path: name, Err: fs.ErrNotExist}
	}
	return agentclient.FileInfo{}, nil
}

func (f fakeFiles) ReadDir(context.Context, string) ([]agentclient.FileInfo, error) {
	return make([]agentclient.FileInfo, maxEntries+1), nil
}

func (f fakeFiles) Mkdir(context.Context, string, agentclient.MkdirOptions) error { return nil }

func (f fakeFiles) WriteFile(_ context.Context, name string, r io.Reader, o agentclient.WriteOptions) (agentclient.FileInfo, error) {
	b, err := io.ReadAll(r)
	if o.Append {
		b = append([]byte(f[name]), b...)
	}
	f[name], f["mode of "+name] = string(b), o.Mode.String()
	return agentclient.FileInfo{}, err
}

func (f fakeFiles) Remove(_ context.Context, name string, _ bool) error {
	delete(f, name)
	delete(f, "mode of "+name)
	return nil
}

func (f fakeFiles) Symlink(_ context.Context, target, name string) error {
	f[name] = "link to " + target
	return nil
}

func (f fakeFiles) Rename(_ context.Context, from, to string) error {
	f[to] = f[from]
	delete(f, from)
	return nil
}

// quiet is the log of servers in tests.
var quiet = slog.New(slog.DiscardHandler)

// cache is a state directory whose cache has the built-in image's disk, which takes seconds to write under the race detector.
var cache string

func TestMain(m *testing.M) {
	sandbox.MaybeRun()
	os.Exit(withCache(m))
}

func withCache(m *testing.M) int {
	var err error
	if cache, err = os.MkdirTemp("", "msb-mcp"); err == nil {
		defer func() { _ = os.RemoveAll(cache) }()
		err = sandbox.Create(context.Background(), sandbox.Config{Home: cache, Name: "x"})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// newHome is a state directory of a test's own, with a copy of the cache.
func newHome(t *testing.T) *sandbox.Home {
	t.Helper()
	home, err := sandbox.OpenHome(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"disks", "refs"} {
		from := filepath.Join(cache, "images", d)
		to := filepath.Join(home.Images(), d)
		if err := os.RemoveAll(to); err != nil { // made empty by OpenHome, if at all
			t.Fatal(err)
		}
		if err := os.CopyFS(to, os.DirFS(from)); err != nil {
			t.Fatal(err)
		}
	}
	return home
}

// playground is a server with a client of its own.
type playground struct {
	*server
	fake   *fakeRunner
	client *sdk.ClientSession
}

func serve(t *testing.T, change func(*Options)) *playground {
	t.Helper()
	o := Options{Home: newHome(t)}
	if change != nil {
		change(&o)
	}
	s, err := newServer(o, quiet)
	if err != nil {
		t.Fatal(err)
	}
	p := &playground{server: s, fake: &fakeRunner{running: map[string]*fakeMachine{}}}
	s.runner = p.fake
	p.client = connect(t, s)
	return p
}

func connect(t *testing.T, s *server) *sdk.ClientSession {
	t.Helper()
	a, b := sdk.NewInMemoryTransports()
	session, err := s.protocol("test").Connect(t.Context(), a, nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), b, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(); _ = session.Wait() })
	return c
}

// testBound is far more than a call takes. One that a fault never lets end fails its test then.
const testBound = time.Minute

// bounded is the test's context, ended after testBound.
func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testBound)
	t.Cleanup(cancel)
	return ctx
}

// got is what comes from a channel within testBound.
func got[T any](t *testing.T, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-bounded(t).Done():
		t.Fatal("nothing came")
	}
	return v
}

// call calls a tool and returns its text. Every result is one text and nothing else.
func (p *playground) call(t *testing.T, tool string, args any) (string, bool) {
	t.Helper()
	r, err := p.client.CallTool(bounded(t), &sdk.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	if r.StructuredContent != nil || len(r.Content) != 1 {
		t.Fatalf("%s: structured %v, %d contents; want one text alone", tool, r.StructuredContent, len(r.Content))
	}
	return r.Content[0].(*sdk.TextContent).Text, r.IsError
}

// says calls a tool and wants these words, and an error or none.
func (p *playground) says(t *testing.T, failed bool, tool string, args any, words ...string) string {
	t.Helper()
	text, isError := p.call(t, tool, args)
	missing := slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) })
	if isError != failed || missing {
		t.Errorf("%s %v: error %v, %.600q; want error %v with %q", tool, args, isError, text, failed, words)
	}
	return text
}

type m = map[string]any

// policy parses one as the operator's, made in code.
func policy(t *testing.T, text string) *policies.Policy {
	t.Helper()
	p, err := policies.Parse("floor.toml", []byte("version = 1\n"+text), nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

var errBoom = errors.New("boom")
