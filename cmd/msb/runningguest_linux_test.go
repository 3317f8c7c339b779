package main

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/agentd/agentpb"
	"github.com/msb-project/msb/internal/handoff"
	"github.com/msb-project/msb/sandbox"
)

// runningGuest is a sandbox that runs, as far as commands see: its supervisor and its guest are the test's process. It
// records what it is asked, and its guest has nothing but the directory /work.
type runningGuest struct {
	agentpb.UnimplementedAgentServer
	agentpb.UnimplementedFilesServer
	agentpb.UnimplementedDirectoriesServer

	dir, jobs string

	mu    sync.Mutex
	asked []string
	answers
}

// answers are what a runningGuest does.
type answers struct {
	// exit is how commands end, code 0 for nil. The command "wait" ends by the first signal, "cat" with its input.
	exit *agentpb.Exit
	// jobError is the answer to everything that is asked of jobs. onJob is called for input and signals of a job.
	jobError error
	// changes are files of the guest's own in a directory that is copied on write. "broken" can't be read.
	changes []string
	onJob   func(name string)
}

// answer changes the answers from now on.
func (g *runningGuest) answer(a answers) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.answers = a
}

// now is the answers as they are.
func (g *runningGuest) now() answers {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.answers
}

// runningSandbox makes a sandbox that runs until the test ends, and returns the environment that it is in.
func runningSandbox(t *testing.T, name string, flags ...string) (env []string, g *runningGuest) {
	t.Helper()
	env, jobs := stopped(t, name, flags...)
	g = &runningGuest{dir: filepath.Dir(jobs), jobs: jobs}
	lock, err := os.OpenFile(filepath.Join(g.dir, "lock"), os.O_RDWR, 0)
	if err == nil {
		err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) // as its supervisor's
	}
	if err != nil {
		t.Fatal(err)
	}
	near, far := net.Pipe()
	inside := grpc.NewServer()
	agentpb.RegisterAgentServer(inside, g)
	agentpb.RegisterFilesServer(inside, g)
	agentpb.RegisterDirectoriesServer(inside, g)
	ends := make(chan error, 2)
	go func() { ends <- inside.Serve(handoff.Of(far)) }()
	client, err := agentclient.Attach(near)
	if err != nil {
		t.Fatal(err)
	}
	l := listenControl(t, g.dir)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		ends <- agentclient.Serve(ctx, l, client, agentclient.Services{Jobs: g, Ports: guestPorts{g}, Supervisor: guestSupervisor{g}})
	}()
	t.Cleanup(func() {
		cancel()
		lock.Close()
		client.Close()
		inside.Stop()
		for range cap(ends) {
			if err := <-ends; err != nil {
				t.Error(err)
			}
		}
	})
	return env, g
}

// listenControl listens where a sandbox's supervisor does, at a path of any length.
func listenControl(t *testing.T, dir string) net.Listener {
	t.Helper()
	at, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer at.Close()
	l, err := net.Listen("unix", fmt.Sprintf("/proc/self/fd/%d/control.sock", at.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // the descriptor in its path is another one by then
	return l
}

// ask records something.
func (g *runningGuest) ask(format string, args ...any) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked = append(g.asked, fmt.Sprintf(format, args...))
}

// allAsked is what taken will be.
func (g *runningGuest) allAsked() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.asked)
}

// taken is what was asked since the last call.
func (g *runningGuest) taken() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	asked := g.asked
	g.asked = nil
	return asked
}

// wantAsked fails the test if what was asked since the last call is something else.
func (g *runningGuest) wantAsked(t *testing.T, what any, want ...string) {
	t.Helper()
	if got := g.taken(); !slices.Equal(got, want) {
		t.Errorf("%v: the sandbox was asked\n%s\nwant\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func (g *runningGuest) Stats(context.Context, *agentpb.StatsRequest) (*agentpb.StatsResponse, error) {
	return &agentpb.StatsResponse{}, nil
}

// startText is a request without what it leaves out.
func startText(argv, env []string, dir, user string, tty, stdin, makeDir bool, timeout time.Duration, limits []string) string {
	text := fmt.Sprintf("%q", argv)
	for _, part := range []struct {
		given bool
		text  string
	}{
		{len(env) > 0, fmt.Sprintf("env %q", env)}, {dir != "", "in " + dir}, {makeDir, "making it"}, {user != "", "as " + user}, {tty, "tty"}, {stdin, "stdin"},
		{timeout != 0, "for " + timeout.String()}, {len(limits) > 0, fmt.Sprintf("limits %q", limits)},
	} {
		if part.given {
			text += ", " + part.text
		}
	}
	return text
}

func (g *runningGuest) Exec(s agentpb.Agent_ExecServer) error {
	first, err := s.Recv()
	if err != nil {
		return err
	}
	x := first.GetStart()
	var limits []string
	for _, l := range x.GetRlimits() {
		limits = append(limits, fmt.Sprintf("%s=%d:%d", l.GetName(), l.GetSoft(), l.GetHard()))
	}
	g.ask("exec %s", startText(x.GetArgv(), x.GetEnv(), x.GetCwd(), x.GetUser(), x.GetTty(), x.GetStdin(), x.GetMakeCwd(), time.Duration(x.GetTimeoutNs()), limits))
	end := g.now().exit
	if end == nil {
		end = &agentpb.Exit{}
	}
	if end.GetStartError() == agentpb.StartError_START_ERROR_UNSPECIFIED {
		started := &agentpb.Started{Pid: 7, StdinWindow: agentpb.StdinWindowBytes}
		if err := s.Send(&agentpb.ExecResponse{Response: &agentpb.ExecResponse_Started{Started: started}}); err != nil {
			return err
		}
	}
	for (x.GetArgv()[0] == "cat" && x.GetStdin() || x.GetArgv()[0] == "wait") && err == nil {
		var r *agentpb.ExecRequest
		if r, err = s.Recv(); err != nil {
			break
		}
		if n := r.GetSignal(); n != 0 {
			g.ask("signal %d", n)
			end = &agentpb.Exit{Code: 128 + int32(n), Signal: n}
			break
		}
		if len(r.GetStdin()) > 0 {
			err = s.Send(&agentpb.ExecResponse{Response: &agentpb.ExecResponse_Stdout{Stdout: r.GetStdin()}})
		}
		if r.GetStdinEof() != nil {
			break
		}
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return s.Send(&agentpb.ExecResponse{Response: &agentpb.ExecResponse_Exit{Exit: end}})
}

func (g *runningGuest) StartJob(_ context.Context, name string, o agentclient.ExecOptions) (string, error) {
	g.ask("start job %q %s", name, startText(o.Argv, o.Env, o.Dir, o.User, o.TTY, o.JobInput, o.MakeDir, o.Timeout, nil))
	if err := g.now().jobError; err != nil {
		return "", err
	}
	if name == "" {
		name = "job-1"
	}
	return name, storeJob(g.jobs, sandbox.JobStatus{Name: name, State: sandbox.JobExited, Command: o.Argv})
}

func (g *runningGuest) SignalJob(_ context.Context, id agentclient.JobID, s agentclient.Signal) error {
	g.ask("signal %d to job %s", s, id.Name)
	g.changed(id.Name)
	return g.now().jobError
}

func (g *runningGuest) WriteJob(_ context.Context, id agentclient.JobID, p []byte, eof bool) (int, error) {
	g.ask("write %q to job %s, end %t", p, id.Name, eof)
	g.changed(id.Name)
	return len(p), g.now().jobError
}

func (g *runningGuest) changed(job string) {
	if do := g.now().onJob; do != nil {
		do(job)
	}
}

func (g *runningGuest) ResizeJob(context.Context, agentclient.JobID, agentclient.Size) error {
	return nil
}

func (g *runningGuest) RemoveJob(_ context.Context, id agentclient.JobID) error {
	g.ask("remove job %s", id.Name)
	return g.now().jobError
}

func (g *runningGuest) Stat(_ context.Context, r *agentpb.StatRequest) (*agentpb.FileInfo, error) {
	info := &agentpb.FileInfo{Name: []byte(path.Base(r.GetPath())), Mode: unix.S_IFDIR | 0o755}
	switch {
	case r.GetPath() == "/" || r.GetPath() == "/work":
		return info, nil
	case r.GetPath() == "/work/link" && !r.GetFollow():
		info.Mode, info.Target = unix.S_IFLNK|0o777, []byte("file")
		return info, nil
	case r.GetPath() == "/work/link" || r.GetPath() == "/work/file":
		info.Mode = unix.S_IFREG | 0o644
		return info, nil
	}
	st, err := status.New(codes.InvalidArgument, "no such file").WithDetails(&agentpb.FileError{Errno: uint32(syscall.ENOENT), Op: "stat", Path: r.GetPath()})
	return nil, errors.Join(err, st.Err())
}

func (g *runningGuest) Pack(r *agentpb.PackRequest, s agentpb.Files_PackServer) error {
	g.ask("pack %s, follow %t", r.GetPath(), r.GetFollow())
	err := s.Send(&agentpb.PackResponse{Data: archive(path.Base(r.GetPath()), 1234)})
	if err != nil {
		return err
	}
	return s.Send(&agentpb.PackResponse{Report: &agentpb.TreeReport{Entries: 1, Bytes: 4, Skipped: []string{"/work/pipe"}, SkippedMore: 2}})
}

func (g *runningGuest) Unpack(s agentpb.Files_UnpackServer) error {
	var start *agentpb.UnpackStart
	var data bytes.Buffer
	for {
		r, err := s.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if r.GetStart() != nil {
			start = r.GetStart()
		}
		data.Write(r.GetData())
	}
	owner := "of the archive"
	if start.GetOwner() != nil {
		owner = fmt.Sprintf("%d:%d", start.GetOwner().GetUid(), start.GetOwner().GetGid())
	}
	var names []string
	for in := tar.NewReader(&data); ; {
		h, err := in.Next()
		if err != nil {
			break
		}
		names = append(names, strings.TrimSuffix(h.Name+"->"+h.Linkname, "->"))
	}
	g.ask("unpack %q in %s, owner %s", names, start.GetPath(), owner)
	return s.SendAndClose(&agentpb.TreeReport{Entries: int64(len(names))})
}

const changedText = "the guest's\n"

func (g *runningGuest) Changes(_ *agentpb.ChangesRequest, s agentpb.Directories_ChangesServer) error {
	layer := &agentpb.ChangesResponse{}
	for _, name := range g.now().changes {
		layer.Entries = append(layer.Entries, &agentpb.LayerEntry{Path: []byte(name), Mode: unix.S_IFREG | 0o644, Size: int64(len(changedText))})
	}
	return s.Send(layer)
}

func (g *runningGuest) ReadChanged(r *agentpb.ReadChangedRequest, s agentpb.Directories_ReadChangedServer) error {
	if string(r.GetName()) == "broken" {
		return status.Error(codes.InvalidArgument, "input/output error")
	}
	return s.Send(&agentpb.ReadChangedResponse{Data: []byte(changedText)})
}

// archive holds one file.
func archive(name string, owner int) []byte {
	const text = "data"
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	_ = w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text)), Uid: owner, Gid: owner, Typeflag: tar.TypeReg}) // in memory
	_, _ = io.WriteString(w, text)
	_ = w.Close()
	return b.Bytes()
}

// guestPorts are its supervisor's, which chooses the port 4000 for none.
type guestPorts struct{ *runningGuest }

func (g guestPorts) AddPort(port string) (string, error) {
	g.ask("add port %s", port)
	if guest, ok := strings.CutPrefix(port, "0:"); ok {
		port = "4000:" + guest
	}
	return port, nil
}

func (g guestPorts) RemovePort(port string) ([]string, error) {
	g.ask("remove port %s", port)
	return []string{port, "9000:80"}, nil
}

type guestSupervisor struct{ *runningGuest }

func (guestSupervisor) Usage(context.Context) any { return sandbox.Usage{} }

func (g guestSupervisor) Update(changes []byte) error {
	g.ask("update %s", changes)
	return nil
}

// storeJob writes the file of a job that this process keeps.
func storeJob(jobs string, st sandbox.JobStatus) error {
	if st.Started.IsZero() {
		st.Started = time.Unix(1e9, 0)
	}
	type process struct {
		PID   int    `json:"pid"`
		Start string `json:"start"`
	}
	of, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return err
	}
	const startTime = 22 // in proc_pid_stat(5); the fields before the third are up to the last parenthesis
	fields := strings.Fields(string(of[bytes.LastIndexByte(of, ')')+1:]))
	b, err := json.Marshal(struct {
		sandbox.JobStatus
		Supervisor process `json:"supervisor"`
	}{st, process{os.Getpid(), fields[startTime-3]}})
	if err != nil {
		return err
	}
	return renameio.WriteFile(filepath.Join(jobs, st.Name+".json"), b, 0o600)
}
