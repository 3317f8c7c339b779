package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox"
)

// TestProgressIsReported with the client's own token, until the call is done.
func TestProgressIsReported(t *testing.T) {
	t.Parallel()
	for what, token := range map[string]any{"text": strings.Repeat("x", maxID), "number": 7.0} {
		p := serve(t, nil)
		p.every = time.Millisecond
		told := make(chan any, 1)
		a, b := sdk.NewInMemoryTransports()
		session, err := p.protocol("test").Connect(t.Context(), a, nil)
		if err != nil {
			t.Fatal(err)
		}
		c, err := sdk.NewClient(&sdk.Implementation{Name: "t", Version: "1"}, &sdk.ClientOptions{
			ProgressNotificationHandler: func(_ context.Context, r *sdk.ProgressNotificationClientRequest) {
				select {
				case told <- r.Params.ProgressToken:
				default:
				}
			},
		}).Connect(t.Context(), b, nil)
		if err != nil {
			t.Fatal(err)
		}
		p.fake.exec = func(ctx context.Context, _ sandbox.ExecOptions) (sandbox.ExitStatus, error) {
			select {
			case got := <-told:
				if got != token {
					t.Errorf("%s: token %v", what, got)
				}
				return sandbox.ExitStatus{}, nil
			case <-ctx.Done():
				return sandbox.ExitStatus{}, ctx.Err()
			}
		}
		r, err := c.CallTool(t.Context(), &sdk.CallToolParams{Meta: sdk.Meta{"progressToken": token}, Name: "sandbox_exec", Arguments: m{"command": "x"}})
		if err != nil || !strings.HasPrefix(r.Content[0].(*sdk.TextContent).Text, "exit code 0") {
			t.Errorf("%s: %+v, %v", what, r, err)
		}
		_, _ = c.Close(), session.Wait()
	}
	for _, token := range []any{strings.Repeat("x", maxID+1), true, []any{"x"}, nil} {
		if got := progressToken(&sdk.CallToolParamsRaw{Meta: sdk.Meta{"progressToken": token}}); got != nil {
			t.Errorf("%T is repeated", token)
		}
	}
}

// TestDestinationsOfRulesAreTheirs: what a result says of an allow rule is of the rule's own port and protocol.
func TestDestinationsOfRulesAreTheirs(t *testing.T) {
	t.Parallel()
	for flag, want := range map[string]string{
		"api.example": "api.example:443", "api.example:443": "api.example:443", "api.example:80": "api.example:80", "git.example:22": "git.example:22",
		"ntp.example:123/udp": "ntp.example:123/udp", "api.example/http": "api.example:80", "api.example/icmp": "api.example/icmp", "api.example:5000-5099/tcp": "api.example:5000",
	} {
		r, err := policies.ParseAllowFlag(flag)
		if err != nil {
			t.Fatal(err)
		}
		if got := targetOf(&r); got != want {
			t.Errorf("%s: %s, want %s", flag, got, want)
		}
	}
	p := serve(t, func(o *Options) {
		o.Floor = policy(t, "[[egress.allow]]\nhosts = [\"git.example\"]\nports = [22]\nprotocol = \"tcp\"\n")
	})
	for rule, useless := range map[string]bool{"git.example:22": false, "git.example:23": true, "git.example:22/udp": true, "*.example:23": false} {
		lines, err := p.opts.useless(&machineArgs{Allow: []string{rule}})
		if err != nil && !strings.Contains(err.Error(), "beyond the operator's floor") || len(lines) > 0 != useless && err == nil {
			t.Errorf("%s: %q, %v", rule, lines, err)
		}
	}
}

// startedElsewhere starts nothing: another server does, for ever.
type startedElsewhere struct{ *fakeRunner }

func (startedElsewhere) connect(context.Context, *sandbox.Status) (machine, error) {
	return nil, sandbox.ErrRunning
}

// TestCancelledCallsDoNotWait for a sandbox that another call makes or starts.
func TestCancelledCallsDoNotWait(t *testing.T) {
	t.Parallel()
	p := serve(t, nil)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	p.making <- struct{}{}
	if _, _, err := p.use(cancelled, ""); !errors.Is(err, context.Canceled) {
		t.Errorf("while another call makes it: %v", err)
	}
	<-p.making
	p.says(t, false, "sandbox_exec", m{"command": "true"})
	p.runner = startedElsewhere{p.fake}
	if _, _, err := p.use(cancelled, ""); !errors.Is(err, context.Canceled) {
		t.Errorf("while another call starts it: %v", err)
	}
	p.asks(t, m{"to": "api.example", "why": "x"})
	all, err := p.opts.Home.Requests().List(defaultName)
	if err != nil || len(all) != 1 {
		t.Fatalf("%v, %v", all, err)
	}
	st, err := p.own("", false)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := (networkTool{p.server}).answer(cancelled, st, all[0].ID); !errors.Is(err, context.Canceled) {
		t.Errorf("while nobody answers: %q, %v", text, err)
	}
}

// TestCancelledCallsGetNoName, though there is room for one: nobody would ask by it.
func TestCancelledCallsGetNoName(t *testing.T) {
	t.Parallel()
	c := newCalls()
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := c.do(cancelled, "x", func(ctx context.Context) (string, error) { <-ctx.Done(); return "", ctx.Err() })
	if !errors.Is(err, context.Canceled) || len(c.list()) != 0 {
		t.Errorf("%v, %v", err, c.list())
	}
}

// TestI15_DefaultsBeyondBoundsAreNotExplained as if they were still to be made.
func TestI15_DefaultsBeyondBoundsAreNotExplained(t *testing.T) {
	t.Parallel()
	p := serve(t, nil)
	p.says(t, false, "sandbox_exec", m{"command": "true"})
	p.opts.Disk--
	for _, action := range []string{"explain", "denied"} {
		p.says(t, true, "network", m{"action": action, "to": "a.example:443"}, "larger than the operator allows now")
	}
}

// TestI11_FaultsAreShort, whichever part of them is long, and keep their codes.
func TestI11_FaultsAreShort(t *testing.T) {
	t.Parallel()
	text := func(n int) json.RawMessage { return json.RawMessage(`"` + strings.Repeat("x", n-2) + `"`) }
	for _, c := range []struct {
		fault jsonrpc.Error
		whole bool
	}{
		{jsonrpc.Error{Code: 7, Message: "m"}, true}, {jsonrpc.Error{Code: 7, Message: "m", Data: text(maxFault)}, true},
		{jsonrpc.Error{Code: 7, Message: "m", Data: text(maxFault + 1)}, false}, {jsonrpc.Error{Code: 7, Message: "m", Data: json.RawMessage("{")}, false},
		{jsonrpc.Error{Code: 7, Message: strings.Repeat("m\x1b", maxFault)}, false},
	} {
		in := &jsonrpc.Response{Error: &c.fault}
		out := short(in)
		var got *jsonrpc.Error
		if !errors.As(out.Error, &got) || got.Code != 7 || (out == in) != c.whole || !c.whole && (got.Data != nil || strings.Contains(got.Message, "\x1b") || len(got.Message) > maxFault) {
			t.Errorf("%.80v: %.300v", c.fault, out.Error)
		}
	}
}

// TestI14_SpoolsHaveNoNames: what a guest wrote is in no file that others of this machine can open.
func TestI14_SpoolsHaveNoNames(t *testing.T) { // not parallel: it sets a variable
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	var s spool
	defer s.close()
	s.write([]byte("x"))
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 0 || s.f == nil || s.err != nil || filepath.Dir(s.f.Name()) != dir {
		t.Errorf("%v, %v, %v", left, err, s.err)
	}
}

// TestNamesThatAreTakenSayWhose, as far as it is the client's business.
func TestNamesThatAreTakenSayWhose(t *testing.T) {
	t.Parallel()
	p := serve(t, func(o *Options) { o.Sandboxes = 9 })
	for name, c := range map[string]struct{ label, want string }{
		"mine":    {p.label, "exists already: mine; use it as it is, choose another name, or delete it"},
		"older":   {p.family + strings.Repeat("0", 32), "exists already: older; choose another name, or delete it"},
		"foreign": {"", "exists already: foreign, and is not yours; choose another name"},
	} {
		if err := sandbox.Create(t.Context(), sandbox.Config{Home: p.opts.Home.Dir(), Name: name, Label: c.label}); err != nil {
			t.Fatal(err)
		}
		p.says(t, true, "sandbox_create", m{"name": name}, c.want)
	}
}

// TestDefaultsMayGoDuringACall: what is said of the default sandbox is as the call found it.
func TestDefaultsMayGoDuringACall(t *testing.T) {
	t.Parallel()
	p := serve(t, nil)
	for _, c := range []struct {
		was  *sandbox.Status
		want string
	}{{nil, "text"}, {&sandbox.Status{Name: "default-1"}, "sandbox default-1, which is the default here\ntext"}} {
		if got := p.about("default-1", c.was, "text"); got != c.want {
			t.Errorf("%v: %q, want %q", c.was, got, c.want)
		}
	}
}

// longOutput is a program that writes more than a result shows.
func longOutput(_ context.Context, o sandbox.ExecOptions) (sandbox.ExitStatus, error) {
	_, err := io.WriteString(o.Stdout, strings.Repeat("x", outputBudget+1))
	return sandbox.ExitStatus{}, err
}

// TestFaultsOfOutputFilesAreTheGuests: the result is there without the file, and what came of the file goes.
func TestFaultsOfOutputFilesAreTheGuests(t *testing.T) {
	t.Parallel()
	for fail, want := range map[string][]string{
		"":                  {"mkdir /tmp/msb-output 755 true", "list /tmp/msb-output", "write /tmp/msb-output/stdout- 600 false"},
		"mkdir /tmp/msb-ou": {"mkdir /tmp/msb-output 755 true"},
		"list":              {"mkdir /tmp/msb-output 755 true", "list /tmp/msb-output", "write /tmp/msb-output/stdout- 600 false"},
		"write":             {"mkdir /tmp/msb-output 755 true", "list /tmp/msb-output", "write /tmp/msb-output/stdout- 600 false", "remove /tmp/msb-output/stdout- false"},
	} {
		p, calls := record(t, fail)
		p.fake.exec = longOutput
		text := p.says(t, false, "sandbox_exec", m{"command": "x"}, "exit code 0", "bytes left out")
		if kept := strings.Contains(text, "all of stdout is in "+outputDir); kept != (fail == "" || fail == "list") {
			t.Errorf("%s fails: %.200s", fail, text)
		}
		got := strings.Split(calls(), "\n")
		for i, call := range got {
			if before, after, ok := strings.Cut(call, "stdout-"); ok {
				_, after, _ = strings.Cut(after, ".txt")
				got[i] = before + "stdout-" + after
			}
		}
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("%s fails: %q, want %q", fail, got, want)
		}
	}
	var broken capture
	var room atomic.Int64
	broken.rest = &spool{room: &room, err: errBoom}
	_, _ = broken.Write([]byte(strings.Repeat("x", outputBudget+1)))
	if text := broken.keep(t.Context(), fakeFiles{}, "stdout"); text != "" {
		t.Errorf("a part is shown as all: %s", text)
	}
}

// TestHTTPFaultsSayWhatIsWrong, with the status of the revision that is spoken.
func TestHTTPFaultsSayWhatIsWrong(t *testing.T) {
	t.Parallel()
	p := serve(t, nil)
	srv, h := overHTTP(t, p, nil)
	now := map[string]string{"Mcp-Protocol-Version": statelessVersion}
	for _, c := range []struct {
		body   string
		head   map[string]string
		status int
		want   string
	}{
		{`{"jsonrpc":"2.0","id":1,"method":"no\u001b"}`, nil, http.StatusOK, `"code":-32601,"message":"no such method: \"no\\\\x1b\""`},
		{`{"jsonrpc":"2.0","id":1,"method":"no\u001b"}`, now, http.StatusNotFound, `"code":-32601,"message":"no such method: \"no\\\\x1b\""`},
		{`{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}`, nil, http.StatusBadRequest, "id: write it once"},
		{`{"jsonrpc":"2.0","id":1.5,"method":"ping"}`, nil, http.StatusBadRequest, "id: write a string of valid UTF-8, or an integer"},
		{`{"jsonrpc":"1.0","id":1,"method":"ping"}`, nil, http.StatusBadRequest, `"id":1,"error":{"code":-32600,"message":"no message of JSON-RPC 2.0`},
		{`{"jsonrpc":"2.0","id":1,"result":{}}`, nil, http.StatusBadRequest, "this server asks for nothing"},
		{`[{"jsonrpc":"2.0","method":"notifications/initialized"},{"jsonrpc":"2.0","id":3,"method":"no"}]`, nil, http.StatusOK, `"id":3,"error":{"code":-32601`},
		{`[]`, nil, http.StatusBadRequest, "a batch has 1 to "},
	} {
		if status, _, text := post(t, srv.URL+HTTPPath, c.body, c.head); status != c.status || !strings.Contains(text, c.want) {
			t.Errorf("%s %v: %d %s; want %d %s", c.body, c.head, status, text, c.status, c.want)
		}
	}
	for range maxRequests {
		h.requests <- struct{}{}
	}
	if status, _, text := post(t, srv.URL+HTTPPath, initialize, nil); status != http.StatusServiceUnavailable || !strings.Contains(text, "busy: at most "+strconv.Itoa(maxRequests)+" requests at once") {
		t.Errorf("with no room for another: %d %s", status, text)
	}
	<-h.requests
	if status, _, text := post(t, srv.URL+HTTPPath, initialize, nil); status != http.StatusOK || len(h.requests) != maxRequests-1 {
		t.Errorf("with room for one: %d %s, %d taken", status, text, len(h.requests))
	}
}

// copying is a guest whose directory is there, and whose copies leave something out.
type copying struct {
	*fakeMachine
	fakeFiles
	stat error
	got  *string
}

type copyingRunner struct {
	*fakeRunner
	m copying
}

func (c copying) Files() files                                                    { return c }
func (r copyingRunner) connect(context.Context, *sandbox.Status) (machine, error) { return r.m, nil }
func (c copying) Stat(context.Context, string, bool) (agentclient.FileInfo, error) {
	return agentclient.FileInfo{}, c.stat
}
func (c copying) Copy(_ context.Context, from, dir, name string) (agentclient.TreeReport, error) {
	*c.got = from + " " + dir + " " + name
	return agentclient.TreeReport{Entries: 2, Bytes: 3, Skipped: make([]string, 2), SkippedMore: 5}, nil
}

// TestCopiesSayWhatTheyLeaveOut, and a fault of the destination is no new name.
func TestCopiesSayWhatTheyLeaveOut(t *testing.T) {
	t.Parallel()
	work := filepath.Join(t.TempDir(), "a\x1bb")
	if err := os.Mkdir(work, 0o700); err != nil {
		t.Fatal(err)
	}
	p := serve(t, func(o *Options) {
		o.Tools, o.Directories = []string{"files"}, []sandbox.Directory{{Host: work, Guest: "/work"}}
	})
	var got string
	for _, stat := range []error{nil, fs.ErrNotExist, errBoom} {
		got = ""
		p.runner = copyingRunner{p.fake, copying{&fakeMachine{runner: p.fake}, fakeFiles{}, stat, &got}}
		args := m{"from": work + "/x", "to": "/in/new\x1b"}
		if stat == errBoom { //nolint:errorlint // the very one
			p.says(t, true, "fs_upload", args, "boom")
		} else {
			p.says(t, false, "fs_upload", args, `a\x1bb/x to /in/new\x1b; 7 devices, FIFOs or sockets left out`, "2 entries, 3 bytes")
		}
		if want := map[bool]string{true: "", false: "/work/x /in new\x1b"}[stat == errBoom]; got != want { //nolint:errorlint // as above
			t.Errorf("%v: copied %q, want %q", stat, got, want)
		}
	}
	p.says(t, true, "fs_download", m{"from": "/x", "to": work + "/x"}, `a\x1bb is shared read-only`)
	p.says(t, true, "fs_upload", m{"from": "/other\x1b", "to": "/x"}, `/other\x1b is in none of the directories`, `a\x1bb`)
}

// TestI12_DestinationsActOnNoTerminal when they are refused.
func TestI12_DestinationsActOnNoTerminal(t *testing.T) {
	t.Parallel()
	p := serve(t, nil)
	p.says(t, false, "sandbox_exec", m{"command": "true"})
	for _, c := range []struct {
		args m
		want string
	}{
		{m{"to": "a.example:443", "path": "x\x1b"}, `path "x\\x1b": give one`}, {m{"to": "a\x1b://b"}, `to "a\\x1b://b" is a URL`},
		{m{"action": "request", "to": "a\x1b:0", "why": "x"}, `to "a\\x1b:0"`}, {m{"action": "request", "to": "a:99999", "why": "x"}, `to "a:99999"`},
		{m{"action": "request", "to": ":1", "why": "x"}, `to ":1"`}, {m{"action": "request", "to": "a\x1b/b", "why": "x"}, `to "a\\x1b/b"`},
		{m{"action": "request", "to": "a\x1bb", "why": "x"}, `a\x1bb`},
	} {
		if c.args["action"] == nil {
			c.args["action"] = "explain"
		}
		if text := p.says(t, true, "network", c.args, c.want); strings.Contains(text, "\x1b") {
			t.Errorf("%v: it acts on terminals: %q", c.args, text)
		}
	}
}

// TestFaultsOfRunsAreSaid, though the sandbox ends well behind them.
func TestFaultsOfRunsAreSaid(t *testing.T) {
	t.Parallel()
	p := serve(t, nil)
	p.fake.exec = func(context.Context, sandbox.ExecOptions) (sandbox.ExitStatus, error) {
		return sandbox.ExitStatus{}, errBoom
	}
	p.says(t, true, "sandbox_run", m{"command": "x"}, "boom")
}

// TestI12_ReasonsActOnNoTerminal, of an approval as little as of a denial; a denial without one is a denial.
func TestI12_ReasonsActOnNoTerminal(t *testing.T) {
	t.Parallel()
	for _, state := range []sandbox.RequestState{sandbox.RequestApproved, sandbox.RequestDenied} {
		text, err := answered(&sandbox.Request{Host: "a.example", Port: 443, State: state, Reason: "a\x1bb\nc", Lifetime: "hour"})
		if err != nil {
			text = err.Error()
		}
		if !strings.Contains(text, `: a\x1bb\nc;`) {
			t.Errorf("%s: %q", state, text)
		}
	}
	for reason, want := range map[string]string{"": "denied", "a\x1bb": "denied", "no_rule": "no_rule"} {
		note := deniedNote(&audit.DenialSummary{Denied: 1, List: []audit.Denial{{Host: "a.example", Port: 443, Reason: reason}}}, "")
		if note != `network policy: 1 denied: "a.example:443" (`+want+")\n" {
			t.Errorf("%q: %q", reason, note)
		}
	}
}

func TestSharedDirectoriesAreSorted(t *testing.T) {
	t.Parallel()
	files := fileTools{&boxes{opts: Options{Directories: []sandbox.Directory{{Host: "/b", Writable: true}, {Host: "/a"}}}}, nil}
	if all, writable := files.sharedNames(false), files.sharedNames(true); all != "/a, /b" || writable != "/b" {
		t.Errorf("%s; %s", all, writable)
	}
}
