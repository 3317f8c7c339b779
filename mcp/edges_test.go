package mcp

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/agentd/agentpb"
	"github.com/msb-project/msb/sandbox"
)

// TestI15_StartsReachNoOthersSandbox: the name has passed to a sandbox that was made later. The twin is the agent's own,
// which fails to start for want of a program.
func TestI15_StartsReachNoOthersSandbox(t *testing.T) {
	t.Parallel()
	p := serve(t, nil)
	p.says(t, false, "sandbox_create", m{"name": "dev"})
	st, err := p.own("dev", false)
	if err != nil {
		t.Fatal(err)
	}
	r := realRunner{home: p.opts.Home, program: "/nosuch", kept: &sessions{keep: keepSession}}
	if _, err := r.start(t.Context(), st); err == nil || errors.Is(err, sandbox.ErrNoSandbox) {
		t.Errorf("its own: %v", err)
	}
	st.Created = st.Created.Add(-time.Second) // as one that was made before
	if _, err := r.start(t.Context(), st); !errors.Is(err, sandbox.ErrNoSandbox) {
		t.Errorf("the other one is started: %v", err)
	}
}

// TestFullListsKeepRunningCalls: the oldest call runs, and the one behind it, which is done, makes room.
func TestFullListsKeepRunningCalls(t *testing.T) {
	t.Parallel()
	c := newCalls()
	defer c.close()
	c.patience = 0
	block := func(ctx context.Context) (string, error) { <-ctx.Done(); return "", ctx.Err() }
	release := make(chan struct{})
	for i := range maxCalls {
		work := block
		if i == 1 {
			work = func(context.Context) (string, error) { <-release; return "", nil }
		}
		if _, err := c.do(t.Context(), "x", work); err != nil {
			t.Fatal(err)
		}
	}
	done, err := c.get("call-2")
	if err != nil {
		t.Fatal(err)
	}
	close(release)
	<-done.done
	if text, err := c.do(t.Context(), "x", block); err != nil || !strings.Contains(text, "call-17") {
		t.Fatal(text, err)
	}
	if _, err := c.get("call-1"); err != nil {
		t.Errorf("the call that runs: %v", err)
	}
	if _, err := c.get("call-2"); err == nil {
		t.Error("the call that is done is still there")
	}
}

// TestI15_HostImagesAreNotListed: the operator's own image may be a directory of the host, whose path is none of a client's
// business. The twin is one of a registry.
func TestI15_HostImagesAreNotListed(t *testing.T) {
	t.Parallel()
	for image, listed := range map[string]bool{"dir:/srv/private": false, "registry.example/own:1": true} {
		p := serve(t, func(o *Options) { o.Floor = policy(t, "[sandbox]\nimage = \""+image+"\"\n") })
		if text := p.says(t, false, "sandbox_list", nil, `"builtin"`); strings.Contains(text, image) != listed {
			t.Errorf("%s: %s", image, text)
		}
	}
}

// TestJobLogsGoOnBetweenCharacters: the cursor of the next part is where the character begins that this one has no room for.
func TestJobLogsGoOnBetweenCharacters(t *testing.T) {
	t.Parallel()
	output := jobText(strings.Repeat("a", outputBudget-1) + "éb")
	if text, err := jobLogs(output, 0); err != nil || !strings.HasPrefix(text, "job web: running; next cursor 31999 of 32002 bytes\n") || !strings.Contains(text, "a\n[end") {
		t.Errorf("%.100q, %v", text, err)
	}
	if text, err := jobLogs(output, outputBudget-1); err != nil || !strings.Contains(text, "bytes]\néb\n[end") {
		t.Errorf("the next part: %q, %v", text, err)
	}
}

// TestWaitingLogLinesAreCopies: log/slog writes its next line into the same buffer.
func TestWaitingLogLinesAreCopies(t *testing.T) {
	t.Parallel()
	l := make(logWriter, 1)
	line := []byte("first\n")
	if _, err := l.Write(line); err != nil {
		t.Fatal(err)
	}
	copy(line, "other\n")
	if got := string(<-l); got != "first\n" {
		t.Errorf("%q, want the line as it was written", got)
	}
}

// TestCutCharactersLeaveTextText: where a long output is cut, a character may be in two.
func TestCutCharactersLeaveTextText(t *testing.T) {
	t.Parallel()
	for _, char := range []string{"é", "€", "😀"} {
		for front := range len(char) {
			if got := show(t, strings.Repeat("a", front)+strings.Repeat(char, 5*outputBudget)); strings.Contains(got, "base64") || !strings.Contains(got, "bytes left out") {
				t.Errorf("%d bytes before %q: %.200q", front, char, got)
			}
		}
	}
}

// namedFiles is a guest's directory with these names.
type namedFiles struct {
	agentpb.UnimplementedAgentServer
	agentpb.UnimplementedFilesServer
	names []string
}

func (namedFiles) Handshake(context.Context, *agentpb.HandshakeRequest) (*agentpb.HandshakeResponse, error) {
	return &agentpb.HandshakeResponse{Version: agentpb.MaxVersion}, nil
}

func (n namedFiles) List(_ *agentpb.ListRequest, s grpc.ServerStreamingServer[agentpb.ListResponse]) error {
	var all []*agentpb.FileInfo
	for i, name := range n.names {
		all = append(all, &agentpb.FileInfo{Name: []byte(name), Mode: map[bool]uint32{true: 0o040755, false: 0o100644}[name == "dir"], ModifiedUnixNs: int64(i)})
	}
	return s.Send(&agentpb.ListResponse{Entries: all})
}

// listedMachine is a machine whose directories are read from a client.
type listedMachine struct {
	fakeMachine
	of *agentclient.Client
}

type listedFiles struct {
	fakeFiles
	of *agentclient.Client
}

func (m *listedMachine) Files() files { return listedFiles{of: m.of} }
func (f listedFiles) ReadDir(ctx context.Context, dir string) ([]agentclient.FileInfo, error) {
	return f.of.Files().ReadDir(ctx, dir)
}

type listedRunner struct {
	*fakeRunner
	m *listedMachine
}

func (r listedRunner) connect(context.Context, *sandbox.Status) (machine, error) { return r.m, nil }

// dialNamed is a client of a guest whose directories have these names, the oldest first.
func dialNamed(t *testing.T, names ...string) *agentclient.Client {
	t.Helper()
	l, srv := bufconn.Listen(1<<16), grpc.NewServer()
	guest := namedFiles{names: names}
	agentpb.RegisterAgentServer(srv, guest)
	agentpb.RegisterFilesServer(srv, guest)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	t.Cleanup(func() { srv.Stop(); <-served })
	stream, err := l.DialContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c, err := agentclient.Dial(t.Context(), stream, agentclient.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// TestI12_NamesMakeNoEntries of files that there are not: a guest's file may have ends of lines in its name.
func TestI12_NamesMakeNoEntries(t *testing.T) {
	t.Parallel()
	c := dialNamed(t, "a\n-rwxr-xr-x 7 forged", "b")
	p := serve(t, nil)
	p.runner = listedRunner{p.fake, &listedMachine{of: c}}
	text := p.says(t, false, "fs_list", m{"path": "/"}, "/: 2 entries\n", `-rw-r--r-- 0 a\n-rwxr-xr-x 7 forged`)
	if entries := regexp.MustCompile(`(?m)^-r`).FindAllString(text, -1); len(entries) != 2 {
		t.Errorf("%d entries are shown of 2: %q", len(entries), text)
	}
}

// TestPromptsNameTheDefaultSandbox, which has another name where "default" is somebody else's.
func TestPromptsNameTheDefaultSandbox(t *testing.T) {
	t.Parallel()
	p := serve(t, nil)
	if err := sandbox.Create(t.Context(), sandbox.Config{Home: p.opts.Home.Dir(), Name: defaultName}); err != nil {
		t.Fatal(err)
	}
	r, err := p.client.GetPrompt(t.Context(), &sdk.GetPromptParams{Name: "review_sandbox"})
	if err != nil || len(r.Messages) != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	if text := r.Messages[0].Content.(*sdk.TextContent).Text; !strings.Contains(text, "the sandbox "+p.defaultName()+":") || p.defaultName() == defaultName {
		t.Errorf("the default is %s: %.200s", p.defaultName(), text)
	}
}
