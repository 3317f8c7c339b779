package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
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

// onSandbox are arguments of each call of a tool that names a sandbox, for that sandbox.
func onSandbox(tool *toolSpec, name string) []m {
	s := tool.schema()
	if s.Properties["sandbox"] == nil {
		return nil
	}
	actions := []string{""}
	if a := s.Properties["action"]; a != nil {
		actions = a.Enum
	}
	calls := make([]m, 0, len(actions))
	for _, action := range actions {
		args, _ := sampleOf(s).(map[string]any)
		args["sandbox"] = name
		if action != "" {
			args["action"] = action
			args["job"] = "1"
		}
		if tool.name == "network" {
			delete(args, "job")
			args["to"], args["why"], args["request"] = "a.example:443", "x", "1"
		}
		if s.Properties["command"] != nil {
			args["command"] = "true"
		}
		switch tool.name {
		case "check_installed":
			args["programs"] = []string{"sh"}
		case "sandbox_run_code":
			args["steps"] = []m{{"language": "sh", "code": "true"}}
		case "fs_search":
			args["text"] = "x"
		}
		calls = append(calls, args)
	}
	return calls
}

// TestI15_EveryToolKeepsToOwnSandboxes: no tool uses one of somebody else, of an older version of the operator's policy, or
// that is beyond what the operator allows now. Those of older versions, and those beyond it, can be stopped and removed.
func TestI15_EveryToolKeepsToOwnSandboxes(t *testing.T) {
	t.Parallel()
	share := sandbox.Directory{Host: t.TempDir(), Guest: "/work", Writable: true}
	p := serve(t, func(o *Options) {
		o.Tools, o.Sandboxes, o.Directories, o.Lifetime, o.IdleStop = []string{AllTools}, 20, []sandbox.Directory{share}, time.Hour, time.Hour
	})
	make := func(name string, change func(*sandbox.Config)) {
		t.Helper()
		cfg := p.opts.base(&machineArgs{})
		cfg.Name, cfg.Label, cfg.CPUs, cfg.Memory, cfg.Disk, cfg.IdleStop, cfg.Policy = name, p.label, 2, DefaultMemory, DefaultDisk, time.Hour, p.opts.Floor
		change(&cfg)
		if err := sandbox.Create(t.Context(), cfg); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	const older, longer, larger, foreign = "older version of the operator's policy", "for longer than the operator allows", "larger than the operator allows", "no such sandbox"
	all := map[string]string{}
	for name, c := range map[string]struct {
		change  func(*sandbox.Config)
		refused string
	}{
		"same": {func(*sandbox.Config) {}, ""},
		"smaller": {func(c *sandbox.Config) {
			c.CPUs, c.Memory, c.Disk, c.IdleStop, c.Lifetime = 1, 256<<20, 1<<30, time.Minute, time.Minute
		}, ""},
		"users": {func(c *sandbox.Config) { c.Label = "" }, foreign},
		"agents": {func(c *sandbox.Config) {
			c.Label = labelPrefix + strings.Repeat("1", 32) + "-" + strings.Repeat("1", 32)
		}, foreign},
		"older":       {func(c *sandbox.Config) { c.Label = p.family + strings.Repeat("0", 32) }, older},
		"cpus":        {func(c *sandbox.Config) { c.CPUs = 3 }, larger},
		"memory":      {func(c *sandbox.Config) { c.Memory = DefaultMemory + 1<<20 }, larger},
		"disk":        {func(c *sandbox.Config) { c.Disk = DefaultDisk + 1<<20 }, larger},
		"lifetime":    {func(c *sandbox.Config) { c.Lifetime = time.Hour + time.Second }, longer},
		"no-lifetime": {func(c *sandbox.Config) { c.Lifetime = 0 }, longer},
		"idle":        {func(c *sandbox.Config) { c.IdleStop = time.Hour + time.Second }, longer},
		"never-idle":  {func(c *sandbox.Config) { c.IdleStop = 0 }, longer},
	} {
		make(name, c.change)
		all[name] = c.refused
	}
	for _, tool := range append(p.tools(), p.moreTools()...) {
		for name, refused := range all {
			for _, args := range onSandbox(&tool, name) {
				switch tool.name {
				case "fs_upload", "sync_start":
					args["from"] = share.Host
				case "git_clone":
					args["repo"] = "https://a.example/b"
				}
				if tool.name == "fs_download" {
					args["to"] = share.Host
				}
				if tool.ends && refused != foreign || tool.name == "sandbox_history" || tool.ends && refused == "" {
					continue // below; history is this server's own
				}
				text, failed := p.call(t, tool.name, args)
				for _, no := range []string{older, longer, larger, foreign} {
					if want := no == refused; strings.Contains(text, no) != want || want && !failed {
						t.Errorf("%s %v of %q: %.300q; want %q", tool.name, args, name, text, refused)
					}
				}
			}
		}
	}
	for name, refused := range all {
		if refused != foreign {
			p.says(t, false, "sandbox_stop", m{"sandbox": name}, "was not running; its files stay")
			p.says(t, false, "sandbox_remove", m{"sandbox": name}, name+" removed with its files")
		}
	}
	for _, name := range []string{"users", "agents"} {
		if _, err := p.opts.Home.Inspect(name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestNoBoundHoldsNone: an operator who bounds no time takes sandboxes with one and without.
func TestNoBoundHoldsNone(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		have, most time.Duration
		want       bool
	}{{0, 0, false}, {1, 0, false}, {0, 1, true}, {1, 1, false}, {2, 1, true}, {1, 2, false}} {
		if got := longer(c.have, c.most); got != c.want {
			t.Errorf("%d of %d: %v", c.have, c.most, got)
		}
	}
}

// TestOthersDefaultsAreNotCalledOlder: only a default of an older version of this policy explains that files are gone.
func TestOthersDefaultsAreNotCalledOlder(t *testing.T) {
	t.Parallel()
	p := serve(t, nil)
	if err := sandbox.Create(t.Context(), sandbox.Config{Home: p.opts.Home.Dir(), Name: defaultName}); err != nil { // the user's own
		t.Fatal(err)
	}
	name := p.defaultName()
	if text := p.says(t, true, "fs_read", m{"path": "relative"}); strings.Contains(text, name) { // nothing was made
		t.Errorf("a call that made nothing names it: %s", text)
	}
	if text := p.says(t, false, "sandbox_exec", m{"command": "true"}); !strings.HasPrefix(text, "sandbox "+name+", which is the default here\n") {
		t.Error(text)
	}
	p.label = p.family + strings.Repeat("b", 32)
	p.says(t, false, "sandbox_create", m{"name": "apart"})
	p.label = p.family + strings.Repeat("c", 32) // "apart" is an older one and no default
	p.says(t, false, "sandbox_exec", m{"command": "true"}, "sandbox default-cccccc is new and empty: "+name+" was made under")
}

// recording are files of a guest that note how they are used.
type recording struct {
	fakeFiles
	mu     *sync.Mutex
	calls  *[]string
	listed []agentclient.FileInfo
	fail   string // what fails
}

func (r recording) note(ctx context.Context, format string, args ...any) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	call := fmt.Sprintf(format, args...)
	*r.calls = append(*r.calls, call)
	if ctx.Err() != nil {
		*r.calls = append(*r.calls, "cancelled "+call)
	}
	if r.fail != "" && strings.HasPrefix(call, r.fail) {
		return errBoom
	}
	return nil
}

func (r recording) Stat(ctx context.Context, name string, follow bool) (agentclient.FileInfo, error) {
	return agentclient.FileInfo{}, r.note(ctx, "stat %s %v", name, follow)
}
func (r recording) ReadDir(ctx context.Context, dir string) ([]agentclient.FileInfo, error) {
	return r.listed, r.note(ctx, "list %s", dir)
}
func (r recording) Remove(ctx context.Context, name string, recursive bool) error {
	return r.note(ctx, "remove %s %v", name, recursive)
}
func (r recording) Mkdir(ctx context.Context, dir string, o agentclient.MkdirOptions) error {
	return r.note(ctx, "mkdir %s %o %v", dir, o.Mode, o.Parents)
}
func (r recording) WriteFile(ctx context.Context, name string, in io.Reader, o agentclient.WriteOptions) (agentclient.FileInfo, error) {
	_, _ = io.Copy(io.Discard, in)
	return agentclient.FileInfo{}, r.note(ctx, "write %s %o %v", name, o.Mode, o.Append)
}
func (r recording) Rename(ctx context.Context, from, to string) error {
	return r.note(ctx, "rename %s %s", from, to)
}

type recordingMachine struct {
	*fakeMachine
	recording
}

func (r recordingMachine) Files() files { return r.recording }

type recordingRunner struct {
	*fakeRunner
	recording
}

func (r recordingRunner) connect(context.Context, *sandbox.Status) (machine, error) {
	return recordingMachine{&fakeMachine{runner: r.fakeRunner, files: fakeFiles{}}, r.recording}, nil
}

// record is a playground whose guest's files note their calls.
func record(t *testing.T, fail string) (p *playground, calls func() string) {
	t.Helper()
	p = serve(t, func(o *Options) { o.Tools = []string{AllTools} })
	r := recording{mu: &sync.Mutex{}, calls: new([]string), fail: fail}
	p.runner = recordingRunner{p.fake, r}
	return p, func() string {
		r.mu.Lock()
		defer r.mu.Unlock()
		all := strings.Join(*r.calls, "\n")
		*r.calls = nil
		return all
	}
}

// TestFileToolsKeepTheirDescriptions: links are followed where a file is read, and not where it is looked at, renamed or removed;
// modes and options are those that the descriptions promise.
func TestFileToolsKeepTheirDescriptions(t *testing.T) {
	t.Parallel()
	p, calls := record(t, "")
	for _, c := range []struct {
		tool string
		args m
		want string
	}{
		{"fs_read", m{"path": "/l"}, "stat /l true"},
		{"fs_list", m{"path": "/l"}, "list /l"},
		{"fs_stat", m{"path": "/l"}, "stat /l false"},
		{"fs_rename", m{"path": "/l", "to": "/k"}, "stat /l false\nrename /l /k"},
		{"fs_remove", m{"path": "/l"}, "remove /l false"},
		{"fs_remove", m{"path": "/l", "recursive": true}, "remove /l true"},
		{"fs_mkdir", m{"path": "/a/b"}, "mkdir /a/b 0 true"},
		{"fs_append", m{"path": "/a", "content": "x"}, "write /a 0 true"},
		{"fs_write", m{"files": []m{{"path": "/a/b", "content": "x"}, {"path": "/c", "content": "x", "executable": true}}},
			"mkdir /a 0 true\nwrite /a/b 644 false\nmkdir / 0 true\nwrite /c 755 false"},
	} {
		p.says(t, false, c.tool, c.args)
		if got := calls(); got != c.want {
			t.Errorf("%s %v: %q, want %q", c.tool, c.args, got, c.want)
		}
	}
	for _, bad := range []string{"fs_write", "fs_append"} { // nothing is written of what is wrong in part
		args := m{"path": "/a/", "content": "x"}
		if bad == "fs_write" {
			args = m{"files": []m{{"path": "/a", "content": "x"}, {"path": "/b", "content": "*", "base64": true}}}
		}
		p.says(t, true, bad, args)
		if got := calls(); got != "" {
			t.Errorf("%s: %q", bad, got)
		}
	}
}

// TestWhatACallLeavesIsRemoved, of one that is cancelled too, and never with what a guest has below that name.
func TestWhatACallLeavesIsRemoved(t *testing.T) {
	t.Parallel()
	p, calls := record(t, "")
	ctx, cancel := context.WithCancel(t.Context())
	p.fake.exec = func(context.Context, sandbox.ExecOptions) (sandbox.ExitStatus, error) {
		cancel()
		return sandbox.ExitStatus{}, context.Canceled
	}
	_, _ = execTools{p.server}.sandboxRunCode(ctx, []byte(`{"steps":[{"language":"sh","code":"x"}]}`))
	lines := strings.Split(calls(), "\n")
	if last := lines[len(lines)-1]; len(lines) != 3 || lines[0] != "mkdir /tmp 777 true" || !strings.HasPrefix(last, "remove /tmp/msb-") || !strings.HasSuffix(last, ".sh false") ||
		lines[1] != "write "+strings.TrimSuffix(strings.TrimPrefix(last, "remove "), " false")+" 600 false" {
		t.Errorf("%q", lines)
	}
	p, calls = record(t, "write /tmp/msb-output")
	p.fake.exec = func(_ context.Context, o sandbox.ExecOptions) (sandbox.ExitStatus, error) {
		_, _ = io.WriteString(o.Stdout, strings.Repeat("x", outputBudget+1))
		return sandbox.ExitStatus{}, nil
	}
	if text := p.says(t, false, "sandbox_exec", m{"command": "x"}, "bytes left out"); strings.Contains(text, outputDir) {
		t.Errorf("a file that could not be written is named: %.200s", text)
	}
	if got := calls(); !strings.HasPrefix(got, "mkdir /tmp/msb-output 755 true\nlist /tmp/msb-output\nwrite /tmp/msb-output/stdout-") || strings.Count(got, ".txt false") != 1 ||
		!strings.Contains(got, "\nremove /tmp/msb-output/stdout-") {
		t.Errorf("%q", got)
	}
}

// TestReadsSayWhatTheyRead: of a file as it is, of one whose size is not known, of one that changes, and behind its end.
func TestReadsSayWhatTheyRead(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		from, to, size int64
		more           bool
		want           string
	}{
		{0, 5, 5, false, "/x: bytes 0 to 5 of 5"},
		{0, 5, 9, true, "/x: bytes 0 to 5 of 9; go on with offset 5"},
		{0, 5, 9, false, "/x: bytes 0 to 5"},
		{0, 5, 0, false, "/x: bytes 0 to 5"},
		{0, 5, 3, true, "/x: bytes 0 to 5; go on with offset 5"},
		{9, 9, 5, false, "/x has 5 bytes: there is nothing at offset 9"},
		{5, 5, 5, false, "/x: bytes 5 to 5 of 5"},
		{9, 9, 0, false, "/x: bytes 9 to 9"},
		{0, 0, 0, false, "/x: bytes 0 to 0 of 0"},
	} {
		if got := readPart("/x", c.from, c.to, c.size, c.more); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

// TestListsSayWhatTheyLeaveOut, and only then.
func TestListsSayWhatTheyLeaveOut(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{maxEntries: "/: 500 entries\n", maxEntries + 1: "/: 501 entries, the first 500\n"} {
		p := serve(t, nil)
		p.runner = recordingRunner{p.fake, recording{mu: &sync.Mutex{}, calls: new([]string), listed: make([]agentclient.FileInfo, n)}}
		if text := p.says(t, false, "fs_list", m{"path": "/"}, want); strings.Count(text, "\n")-4 != min(n, maxEntries) {
			t.Errorf("%d entries in %d lines", n, strings.Count(text, "\n"))
		}
	}
	entry := func(n uint64) audit.Denial {
		return audit.Denial{Host: "a.example", Port: 443, Reason: "no_rule", Count: n}
	}
	for _, c := range []struct {
		counts []uint64
		others uint64
		want   string
	}{
		{[]uint64{1}, 0, `"a.example:443" (no_rule)` + "\n"},
		{[]uint64{2}, 0, `(no_rule, 2 times)` + "\n"},
		{[]uint64{1, 1, 1}, 0, `(no_rule)` + "\n"},
		{[]uint64{1, 1, 1, 1}, 0, `(no_rule), others` + "\n"},
		{[]uint64{1}, 1, `(no_rule), others` + "\n"},
	} {
		d := audit.DenialSummary{Denied: 1, Others: c.others}
		for _, n := range c.counts {
			d.List = append(d.List, entry(n))
		}
		if got := deniedNote(&d, ""); !strings.HasSuffix(got, c.want) || strings.Count(got, "a.example") != min(len(c.counts), shownDenials) {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

// TestCodeNeedsItsLanguage, whichever of its programs are missing, and a long output ends the steps.
func TestCodeNeedsItsLanguage(t *testing.T) {
	t.Parallel()
	p := serve(t, nil)
	ran := []string{}
	p.fake.exec = func(_ context.Context, o sandbox.ExecOptions) (sandbox.ExitStatus, error) {
		ran = append(ran, o.Argv[0])
		switch o.Argv[0] {
		case "python", "python3":
			return sandbox.ExitStatus{Code: 127, StartError: agentclient.NotFound}, nil
		case "ruby":
			_, _ = io.WriteString(o.Stdout, strings.Repeat("x", outputBudget/2))
		case "perl":
			_, _ = io.WriteString(o.Stdout, strings.Repeat("x", outputBudget))
		}
		return sandbox.ExitStatus{}, nil
	}
	steps := func(names ...string) m {
		all := []m{}
		for _, n := range names {
			all = append(all, m{"language": n, "code": "x"})
		}
		return m{"steps": all}
	}
	p.says(t, true, "sandbox_run_code", steps("python"), "step 1 of 1 (python): not started (exit code 127)")
	if got := strings.Join(ran, " "); got != "python3 python" {
		t.Errorf("tried %s", got)
	}
	if text := p.says(t, false, "sandbox_run_code", steps("perl", "sh"), "stopped before step 2: "); strings.Contains(text, "step 2 of 2") {
		t.Error("the second step ran")
	}
	if text := p.says(t, false, "sandbox_run_code", steps("sh", "perl")); strings.Contains(text, "stopped before") {
		t.Error("stopped behind the last step")
	}
	p.says(t, false, "sandbox_run_code", steps("ruby", "sh"), "step 2 of 2 (sh): exit code 0")
}

// lyingJob is a job whose state and output are whatever a guest, or a damaged file, could make of them.
type lyingJob struct {
	status sandbox.JobStatus
	size   int64
	out    sandbox.JobOutput
	asked  *int64
}

func (j lyingJob) Status() (sandbox.JobStatus, error) { return j.status, nil }
func (j lyingJob) OutputSize() (int64, error)         { return j.size, nil }
func (j lyingJob) Output(from int64, most int) (sandbox.JobOutput, error) {
	if most > outputBudget || from < 0 {
		return sandbox.JobOutput{}, fmt.Errorf("%d bytes from %d", most, from)
	}
	*j.asked = from
	return j.out, nil
}

// TestI12_LyingJobsAreShown, of whatever states, sizes and names, in results of a bounded length with the guest's words
// between marks.
func TestI12_LyingJobsAreShown(t *testing.T) {
	t.Parallel()
	huge := strings.Repeat("\x1b[2J\nobey ", 1<<12)
	before := time.Now().Add(-time.Hour)
	for what, st := range map[string]sandbox.JobStatus{
		"ended before it began": {Name: "a", State: sandbox.JobExited, Started: time.Now(), Ended: &before, Code: -1},
		"ended and runs":        {Name: "a", State: sandbox.JobRunning, Ended: &before, Code: 7},
		"a state of its own":    {Name: "a", State: sandbox.JobState(strings.ReplaceAll(huge, "obey", "odd")), Code: math.MinInt},
		"huge names":            {Name: strings.ReplaceAll(huge, "obey", "odd"), State: sandbox.JobLost, Reason: huge, Command: []string{huge}},
		"sizes below 0":         {Name: "a", State: sandbox.JobKilled, OutputBytes: math.MinInt64, LostBytes: math.MinInt64},
		"an empty one":          {},
	} {
		if line := jobLine(&st); len(line) > 1000 || strings.ContainsAny(line, "\x1b\n") || strings.Contains(line, ", exit code") != (st.State == sandbox.JobExited || st.State == sandbox.JobKilled) {
			t.Errorf("%s: %.300q", what, line)
		}
		s := jobTools{calls: newCalls()}
		text, err := s.listJobs([]sandbox.JobStatus{st, st})
		if err != nil || len(text) > outputBudget+200 || strings.Contains(outside(t, text), "obey") || strings.ContainsRune(text, 0x1b) {
			t.Errorf("%s: %d bytes, %v: %.300q", what, len(text), err, text)
		}
		for _, size := range []int64{math.MinInt64, -1, 0, 5, 10 << 30, math.MaxInt64} {
			for _, cursor := range []int64{math.MinInt64, -1 << 40, -1, 0, 1, math.MaxInt64} {
				for _, next := range []int64{math.MinInt64, 0, math.MaxInt64} {
					var asked int64
					j := lyingJob{st, size, sandbox.JobOutput{Data: []byte("obey\x1b[2J"), Next: next, Missing: next}, &asked}
					text, err := jobLogs(j, cursor)
					if (err != nil) != (cursor > size) {
						t.Fatalf("%s, cursor %d of %d: %v", what, cursor, size, err)
					}
					if err == nil && (len(text) > outputBudget+1000 || strings.Contains(outside(t, text), "obey") || strings.ContainsRune(text, 0x1b)) {
						t.Fatalf("%s, cursor %d of %d: %.300q", what, cursor, size, text)
					}
					if want := max(0, size+cursor); err == nil && cursor < 0 && size >= 0 && asked != want {
						t.Fatalf("cursor %d of %d: asked from %d", cursor, size, asked)
					}
				}
			}
		}
	}
	// 10 GB of output: the end is asked for, and no more than a result shows is held. Bytes at the beginning stay.
	var asked int64
	j := lyingJob{sandbox.JobStatus{Name: "a", State: sandbox.JobRunning}, 10 << 30, sandbox.JobOutput{Data: []byte("\x80\x80end"), Next: 10 << 30}, &asked}
	text, err := jobLogs(j, -5)
	if err != nil || asked != 10<<30-5 || !strings.Contains(text, "next cursor 10737418240 of 10737418240 bytes\n") || !strings.Contains(text, "bytes]\nend\n[end") {
		t.Errorf("asked from %d: %q, %v", asked, text, err)
	}
	j.size, j.out.Next = 5, 5
	if text, err := jobLogs(j, -9); err != nil || !strings.Contains(text, "base64, because 2 of these bytes") {
		t.Errorf("the beginning: %q, %v", text, err)
	}
}

// stopping starts a sandbox while another server on the state directory starts one too, and its client goes.
type stopping struct {
	*fakeRunner
	beside func()
	closed chan string
}

func (r stopping) start(ctx context.Context, st *sandbox.Status) (machine, error) {
	m, err := r.fakeRunner.start(ctx, st)
	r.beside()
	return m, err
}

func (r stopping) stop(ctx context.Context, st *sandbox.Status) error {
	r.closed <- fmt.Sprint(st.Name, " ", ctx.Err())
	return r.fakeRunner.stop(ctx, st)
}

// TestI11_StartsBeyondTheBoundAreUndone, also where the client has gone meanwhile. The twin has room for both.
func TestI11_StartsBeyondTheBoundAreUndone(t *testing.T) {
	t.Parallel()
	for _, most := range []int{1, 2} {
		home := newHome(t)
		maker := serve(t, func(o *Options) { o.Home = home })
		maker.says(t, false, "sandbox_create", m{"name": "a"})
		maker.says(t, false, "sandbox_create", m{"name": "b"})
		p := serve(t, func(o *Options) { o.Home, o.Sandboxes = home, most })
		ctx, cancel := context.WithCancel(t.Context())
		r := stopping{p.fake, func() {
			l, err := net.Listen("unix", filepath.Join(home.Dir(), "sandboxes", "b", "control.sock"))
			if err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(func() { _ = l.Close() })
			cancel()
		}, make(chan string, 1)}
		p.runner = r
		_, _, err := p.use(ctx, "a")
		if mine, _ := p.othersRun("a"); mine != 1 {
			t.Fatalf("%d others run: a sandbox that runs looks different", mine)
		}
		if (err != nil) != (most == 1) || err != nil && !errors.Is(err, errTooMany) {
			t.Errorf("at most %d: %v", most, err)
		}
		if most == 1 {
			select {
			case got := <-r.closed:
				if got != "a <nil>" {
					t.Errorf("stopped %s", got)
				}
			default:
				t.Error("it was not stopped")
			}
		}
		cancel()
	}
}

// TestStartedSandboxesDontCountAgainstThemselves: one that runs after its start, where one may.
func TestStartedSandboxesDontCountAgainstThemselves(t *testing.T) {
	t.Parallel()
	p := serve(t, func(o *Options) { o.Sandboxes = 1 })
	p.says(t, false, "sandbox_create", m{"name": "a"})
	clear(p.fake.running)
	p.runner = stopping{p.fake, func() {
		l, err := net.Listen("unix", filepath.Join(p.opts.Home.Dir(), "sandboxes", "a", "control.sock"))
		if err != nil {
			t.Error(err)
			return
		}
		t.Cleanup(func() { _ = l.Close() })
	}, make(chan string, 1)}
	_, _, err := p.use(t.Context(), "a")
	if err != nil {
		t.Error(err)
	}
	if mine, err := p.othersRun("another"); mine != 1 || err != nil {
		t.Fatalf("%d run, %v: a sandbox that runs looks different", mine, err)
	}
}

// cancelling is a runner whose client goes while a sandbox starts.
type cancelling struct {
	*fakeRunner
	cancel context.CancelFunc
}

func (r cancelling) start(ctx context.Context, _ *sandbox.Status) (machine, error) {
	r.cancel()
	return nil, ctx.Err()
}

// TestI11_FailedStartsLeaveNoSandbox, whether their start fails or their client goes.
func TestI11_FailedStartsLeaveNoSandbox(t *testing.T) {
	t.Parallel()
	p := serve(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	p.runner = cancelling{p.fake, cancel}
	if _, err := p.sandboxCreate(ctx, []byte(`{"name":"gone"}`)); !errors.Is(err, context.Canceled) {
		t.Errorf("its client has gone: %v", err)
	}
	p.fake.startErr = errBoom
	p.runner = p.fake
	p.says(t, true, "sandbox_create", m{"name": "failed"}, "boom")
	if mine, err := p.mine(); err != nil || len(mine) > 0 {
		t.Errorf("%+v, %v", mine, err)
	}
}

// TestWrongTypesAreNamedByField, without a word of this program's types.
func TestWrongTypesAreNamedByField(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"files":[{"path":7}]}`:        "path is a JSON number, and has to be a string",
		`{"sandbox":true}`:              "sandbox is a JSON bool, and has to be a string",
		`7`:                             "it is a JSON number, and has to be an object",
		`{"files":{}}`:                  "files is a JSON object, and has to be an array",
		`{"timeout":"1"}`:               "timeout is a JSON string, and has to be a number",
		`{"on":1}`:                      "on is a JSON number, and has to be true or false",
		`{"env":[]}`:                    "env is a JSON array, and has to be an object",
		`{"other":1}`:                   `unknown field "other"`,
		`{} {}`:                         "more than one JSON value",
		`{}x`:                           "more than one JSON value",
		``:                              "",
		" \n":                           "",
		"null":                          "",
		" null ":                        "",
		`{"sandbox":null,"files":null}`: "",
	} {
		var a struct {
			Sandbox string `json:"sandbox"`
			Files   []struct {
				Path string `json:"path"`
			} `json:"files"`
			Timeout *float64          `json:"timeout"`
			On      bool              `json:"on"`
			Env     map[string]string `json:"env"`
		}
		err := decode([]byte(text), &a)
		if (err != nil) != (want != "") || err != nil && (!strings.Contains(err.Error(), want) || !errors.Is(err, errArgs)) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// TestShowingChangesNoOptions: what a list shows is made of copies.
func TestShowingChangesNoOptions(t *testing.T) {
	t.Parallel()
	hide := []string{"a", "b"}
	o := Options{Directories: []sandbox.Directory{{Host: "/x", Guest: "/x"}}, Hide: hide[:1], HideCredentials: true}
	if got := o.hidden(); len(got) != 2 || hide[1] != "b" {
		t.Errorf("%q, and the operator's are %q", got, hide)
	}
	for _, c := range []struct {
		o     Options
		hides bool
		shown int
	}{
		{Options{}, false, 0}, {Options{HideCredentials: true, Hide: []string{"x"}}, false, 0},
		{Options{Directories: o.Directories}, false, 0}, {Options{Directories: o.Directories, HideCredentials: true}, true, 1}, {Options{Directories: o.Directories, Hide: []string{"x"}}, true, 1},
	} {
		if got := c.o.hidden(); c.o.hides() != c.hides || len(got) != c.shown {
			t.Errorf("%+v: hides %v, shows %q", c.o, c.o.hides(), got)
		}
	}
	for path, want := range map[string]bool{"/x": true, "/x/y": true, "/xy": false, "/": false, "": false} {
		if o.inShared(path) != want {
			t.Errorf("%s: %v", path, !want)
		}
	}
	root := Options{Directories: []sandbox.Directory{{Guest: "/"}}}
	if !root.inShared("/etc") {
		t.Error("a directory at / has nothing in it")
	}
}

// TestWarningsAreOfWhatIsWrong: a sandbox may have all memory of this machine, and no more.
func TestWarningsAreOfWhatIsWrong(t *testing.T) {
	t.Parallel()
	home := newHome(t)
	most := ram()
	if most == 0 {
		t.Skip("the memory of this machine is unknown")
	}
	for over, want := range map[int64]int{0: 0, 1: 1} {
		if got, err := (Options{Home: home, Floor: policies.Default(), Memory: most + over}).Check(); err != nil || len(got) != want {
			t.Errorf("%d bytes more: %q, %v", over, got, err)
		}
	}
}

// TestToolsSayWhatTheyHave: no list of required arguments is empty, and only fs_read promises long results.
func TestToolsSayWhatTheyHave(t *testing.T) {
	t.Parallel()
	p := serve(t, func(o *Options) { o.Tools = []string{AllTools} })
	all, err := p.client.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var long, always []string
	for _, tool := range all.Tools {
		s, _ := tool.InputSchema.(map[string]any)
		if required, ok := s["required"].([]any); ok && len(required) == 0 || s["additionalProperties"] != false {
			t.Errorf("%s: %v", tool.Name, s)
		}
		if tool.Meta["anthropic/maxResultSizeChars"] != nil {
			long = append(long, tool.Name)
		}
		if _, hint := tool.Meta["anthropic/searchHint"]; hint == (tool.Meta["anthropic/alwaysLoad"] == true) {
			t.Errorf("%s: %v", tool.Name, tool.Meta)
		}
		if tool.Meta["anthropic/alwaysLoad"] == true {
			always = append(always, tool.Name)
		}
	}
	if !slices.Equal(long, []string{"fs_read"}) || len(always) == 0 || len(always) > 6 {
		t.Errorf("long results of %q, always there %q", long, always)
	}
}

// TestErrorsOfFilesAreTheGuests whatever they wrap.
func TestErrorsOfFilesAreTheGuests(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err error
		own bool
	}{
		{errArgs, true}, {wrong("x"), true}, {fmt.Errorf("x: %w", errArgs), true}, {errors.Join(errArgs, errTooMany), true},
		{errBoom, false}, {fmt.Errorf("x: %w", errBoom), false}, {errors.Join(errArgs, errBoom), false}, {errors.Join(errBoom, errArgs), false},
		{&fs.PathError{Op: "open", Path: "/x", Err: context.Canceled}, false}, {fmt.Errorf("x: %w", &fs.PathError{Err: errArgs}), false},
		{fmt.Errorf("%w and %w", errArgs, errBoom), false}, {sandbox.Fail(fmt.Errorf("%w: x", sandbox.ErrNoSandbox)), true},
		{sandbox.Fail(errors.New("the console says: obey")), false}, {said{errBoom}, true}, {sandbox.ErrDirectory, false},
	} {
		if own(c.err) != c.own {
			t.Errorf("%#v: own %v", c.err, !c.own)
		}
	}
}

// TestI11_BoundsOfHTTPAreExact: of bodies, of what is held together, and of batches.
func TestI11_BoundsOfHTTPAreExact(t *testing.T) {
	t.Parallel()
	p := serve(t, nil)
	var held int64
	srv, h := overHTTP(t, p, nil)
	full, hf := overHTTP(t, p, func(h *httpServer) { h.held.Store(maxBodies - int64(len(initialize))) })
	padded := func(n int) string {
		head, tail := `{"jsonrpc":"2.0","id":7,"method":"no/such","x":"`, `"}`
		return head + strings.Repeat("x", n-len(head)-len(tail)) + tail
	}
	batch := func(n int) string {
		return "[" + strings.TrimSuffix(strings.Repeat(`{"jsonrpc":"2.0","method":"x"},`, n), ",") + "]"
	}
	for what, c := range map[string]struct {
		url, body string
		refused   bool
		words     string
	}{
		"a body":           {srv.URL, padded(maxLine), false, "no such method"},
		"a longer one":     {srv.URL, padded(maxLine + 1), true, "more than 8388608 bytes"},
		"a batch":          {srv.URL, batch(maxInflight), false, "1 to 64 messages"},
		"a longer batch":   {srv.URL, batch(maxInflight + 1), true, "1 to 64 messages"},
		"an empty batch":   {srv.URL, "[]", true, "1 to 64 messages"},
		"what has no room": {full.URL, initialize + " ", true, "bytes of requests at once"},
	} {
		_, _, text := post(t, c.url+HTTPPath, c.body, nil)
		if got := strings.Contains(text, c.words); got != (c.refused || c.words == "no such method") {
			t.Errorf("%s: %.200s", what, text)
		}
	}
	if status, _, text := post(t, full.URL+HTTPPath, initialize, nil); status != 200 {
		t.Errorf("what fits: %d %s", status, text)
	}
	srv.Close() // which waits for the requests
	full.Close()
	if held = h.held.Load(); held != 0 || hf.held.Load() != maxBodies-int64(len(initialize)) {
		t.Errorf("%d and %d bytes are held", held, hf.held.Load())
	}
	for what, c := range map[string]struct {
		calls, held, size int
		busy              bool
	}{
		"the last call": {maxInflight - 1, 0, 1, false}, "one more": {maxInflight, 0, 1, true},
		"the last byte": {0, maxInflightBytes - 5, 5, false}, "a byte more": {0, maxInflightBytes - 5, 6, true},
	} {
		b := &callBound{calls: c.calls, held: c.held}
		ran := false
		next := b.middleware(func(context.Context, string, sdk.Request) (sdk.Result, error) {
			ran = true
			if b.calls != c.calls+1 || b.held != c.held+c.size {
				t.Errorf("%s: %d calls of %d bytes under way", what, b.calls, b.held)
			}
			return nil, nil
		})
		_, err := next(t.Context(), "tools/call", &sdk.CallToolRequest{Params: &sdk.CallToolParamsRaw{}, Extra: &sdk.RequestExtra{Header: http.Header{sizeHeader: {strconv.Itoa(c.size)}}}})
		if ran == c.busy || (err != nil) != c.busy || b.calls != c.calls || b.held != c.held {
			t.Errorf("%s: ran %v, %v, %d calls of %d bytes left", what, ran, err, b.calls, b.held)
		}
	}
	b := &callBound{calls: maxInflight}
	listed := false
	next := b.middleware(func(context.Context, string, sdk.Request) (sdk.Result, error) { listed = true; return nil, nil })
	if _, err := next(t.Context(), "tools/list", &sdk.ListToolsRequest{Params: &sdk.ListToolsParams{}}); err != nil || !listed {
		t.Errorf("a list while as many calls run as may: %v", err)
	}
}

// TestI15_SitesAndTokensAreHeldExactly.
func TestI15_SitesAndTokensAreHeldExactly(t *testing.T) {
	t.Parallel()
	h := serve(t, nil).overHTTP("test", HTTPOptions{Token: testToken, Hosts: []string{"msb.example"}})
	for _, c := range []struct {
		origins []string
		want    bool
	}{
		{nil, true}, {[]string{"http://msb.example:80"}, true}, {[]string{"https://MSB.example:80"}, true}, {[]string{"ftp://msb.example:80"}, false}, {[]string{"//msb.example:80"}, false},
		{[]string{"http://msb.example"}, false}, {[]string{"http://"}, false}, {[]string{""}, false}, {[]string{"http://msb.example:80", "http://evil.example"}, false},
		{[]string{"http://evil.example", "http://msb.example:80"}, false}, {[]string{"http://msb.example:80", "http://msb.example:80"}, false}, {[]string{"http://%zz"}, false},
	} {
		r := httptest.NewRequest(http.MethodPost, "http://msb.example:80"+HTTPPath, nil)
		r.Header["Origin"] = c.origins
		if sameOrigin(r) != c.want {
			t.Errorf("Origin %q: %v", c.origins, !c.want)
		}
	}
	for _, c := range []struct {
		tokens []string
		want   bool
	}{
		{nil, false}, {[]string{"Bearer " + testToken}, true}, {[]string{"Bearer  " + testToken}, false}, {[]string{"Bearer"}, false}, {[]string{"Bearer "}, false}, {[]string{testToken}, false},
		{[]string{"Bearer " + testToken, "Bearer " + testToken}, false}, {[]string{"Bearer x", "Bearer " + testToken}, false}, {[]string{"Bearer " + testToken + " "}, false}, {[]string{" " + testToken}, false},
	} {
		r := httptest.NewRequest(http.MethodPost, "http://msb.example"+HTTPPath, nil)
		r.Header["Authorization"] = c.tokens
		if h.knows(r) != c.want {
			t.Errorf("Authorization %q: %v", c.tokens, !c.want)
		}
	}
	for host, want := range map[string]bool{
		"": false, ":80": false, "localhost": true, "localhost.": false, "127.0.0.1": true, "127.0.0.1:8": true, "[::1]": true, "[::1]:8": true, "10.1.2.3:8": true,
		"MSB.EXAMPLE:8": true, "msb.example.": false, "xmsb.example": false, "msb.example@evil.example": false, "0x7f000001": false, "evil.example": false,
	} {
		if h.ours(host) != want {
			t.Errorf("Host %q: %v", host, !want)
		}
	}
}

// TestFullServersAnswerTheirSessions: where no more may be opened, those that are open go on.
func TestFullServersAnswerTheirSessions(t *testing.T) {
	t.Parallel()
	srv, h := overHTTP(t, serve(t, nil), func(h *httpServer) { h.sessions.most = 1 })
	_, session, _ := post(t, srv.URL+HTTPPath, initialize, nil)
	head := map[string]string{"Mcp-Session-Id": session}
	if status, _, text := post(t, srv.URL+HTTPPath, ping("2"), head); status != http.StatusOK || strings.Contains(text, "busy") {
		t.Errorf("%d %s", status, text)
	}
	h.sessions.opening.Lock() // as while another opens one
	defer h.sessions.opening.Unlock()
	if status, _, text := post(t, srv.URL+HTTPPath, ping("3"), head); status != http.StatusOK {
		t.Errorf("beside one that opens: %d %s", status, text)
	}
}

// TestI15_InnermostDirectoriesDecide whether files may be written: a read-only directory within a writable one stays
// read-only, in whatever order they are shared. The twins lie beside it, and within one that is shared twice.
func TestI15_InnermostDirectoriesDecide(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	inner, twice := filepath.Join(dir, "inner"), filepath.Join(dir, "twice")
	all := []sandbox.Directory{{Host: dir, Guest: "/outer", Writable: true}, {Host: inner, Guest: "/inner"}, {Host: twice, Guest: "/ro"}, {Host: twice, Guest: "/rw", Writable: true}}
	for range 2 {
		tools := fileTools{boxes: &boxes{opts: Options{Directories: all}}}
		for at, want := range map[string]string{dir + "/x": "/outer/x", dir + "/innerx": "/outer/innerx", inner + "/x": "", inner: "", twice + "/x": "/rw/x", dir + "/../x": ""} {
			if got, err := tools.shared(at, true); got != want || (err != nil) != (want == "") {
				t.Errorf("writing %s: %q, %v; want %q", at, got, err, want)
			}
		}
		if got, err := tools.shared(inner+"/x", false); got != "/inner/x" || err != nil {
			t.Errorf("reading: %q, %v", got, err)
		}
		slices.Reverse(all)
	}
}
