//go:build !vmtest

package sandbox

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msb-project/msb/agentd/agentpb"
	"github.com/msb-project/msb/internal/handoff"
	"github.com/msb-project/msb/internal/transfer"
	"github.com/msb-project/msb/internal/vm"
	"github.com/msb-project/msb/internal/vm/hypervisors"
	"github.com/msb-project/msb/sandbox/internal/state"
	"github.com/msb-project/msb/sandbox/internal/supervisor"
)

// realMachines is false where the machines are fakeMachine.
const realMachines = false

// TestMain lets the test's own program be a real supervisor with a machine that isn't one, and a caller that a test kills.
func TestMain(m *testing.M) {
	hypervisors.MaybeRun()
	mayRun = true // it does what MaybeRun does
	switch {
	case len(os.Args) > 1 && os.Args[1] == Verb:
		agentpb.QuietLog()
		os.Exit(supervisor.RunOn(fakeBackend{}, hooks))
	case len(os.Args) == 3 && os.Args[1] == partVerb:
		os.Exit(lendPart(os.Args[2], os.Stdout, os.Stderr))
	case len(os.Args) > 2 && os.Args[1] == fakeVMMArg:
		os.Exit(fakeVMM(os.Args[2]))
	case os.Getenv(callerEnv) != "":
		agentpb.QuietLog()
		os.Exit(callOnce(os.Getenv(callerEnv)))
	}
	os.Exit(m.Run())
}

// fakeBackend starts machines that are a process with the sandbox's disk, and an agent in the supervisor.
type fakeBackend struct{}

func (fakeBackend) Name() string                    { return "fake" }
func (fakeBackend) Probe(context.Context) vm.Report { return vm.Report{} }

func (fakeBackend) Start(_ context.Context, spec vm.Spec) (vm.Machine, error) {
	if spec.Net != nil {
		defer func() { _ = spec.Net.FD.Close() }()
	}
	defer func() {
		for _, f := range spec.Held {
			_ = f.Close()
		}
	}()
	i := slices.IndexFunc(spec.Disks, func(d vm.Disk) bool { return !d.ReadOnly })
	readOnly := i < 0
	if readOnly {
		i = len(spec.Disks) - 1
	}
	disk, err := os.OpenFile(spec.Disks[i].Path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("/proc/self/exe", fakeVMMArg, spec.Disks[i].Path) //nolint:noctx // it ends with its pipe
	life, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	says, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	// A real one is killed with its supervisor, paused or not. This one goes on, sees it and takes its time.
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGCONT}
	cmd.ExtraFiles = spec.Held // the locks of volumes, which last as long as it can write
	started, ended := make(chan error, 1), make(chan struct{})
	go func() {
		runtime.LockOSThread() // the signal comes with the end of the thread
		defer close(ended)
		err := cmd.Start()
		if started <- err; err == nil {
			_ = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	word := make([]byte, 64)
	if n, _ := says.Read(word); string(word[:n]) != "ok" {
		<-ended
		return nil, fmt.Errorf("the fake VMM says %q", word[:n])
	}
	m := &fakeMachine{boot: rand.Text(), memory: spec.MemoryMiB, cmd: cmd, life: life, done: make(chan struct{}), disk: disk, readOnly: readOnly}
	for _, d := range spec.Disks {
		if filepath.Base(d.Path) == state.TransferDisk { // which every machine has
			if m.transfer, err = os.OpenFile(d.Path, os.O_RDWR, 0); err != nil {
				return nil, err
			}
			continue
		}
		m.greeted.Disks = append(m.greeted.Disks, fmt.Sprintf("%s %t", d.Path, d.ReadOnly))
	}
	m.host, m.far = net.Pipe()
	if err := m.read(); err != nil {
		return nil, err
	}
	srv := grpc.NewServer()
	agentpb.RegisterAgentServer(srv, m)
	agentpb.RegisterFilesServer(srv, fakeFiles{machine: m})
	agentpb.RegisterSearchServer(srv, fakeSearch{})
	agentpb.RegisterFreezerServer(srv, fakeFreezer{machine: m})
	if spec.Resume != nil {
		if err := m.goOn(spec.Resume); err != nil {
			_ = m.cmd.Process.Kill()
			<-ended
			return nil, err
		}
	}
	go func() {
		if spec.Resume == nil || m.rejoin() == nil {
			_ = srv.Serve(handoff.Of(m.far))
		}
	}()
	go func() { <-ended; m.gone() }()
	if spec.Saves {
		return fakeSaver{m}, nil
	}
	return m, nil
}

// fakeVMM holds the disk until it is told to end, or its supervisor has gone: then longer than the next start takes.
func fakeVMM(name string) int {
	disk, err := os.OpenFile(name, os.O_RDWR, 0)
	if err == nil {
		err = unix.FcntlFlock(disk.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}) // as QEMU's
	}
	if err != nil {
		fmt.Print("another machine has the disk")
		return 1
	}
	fmt.Print("ok")
	if n, _ := os.Stdin.Read(make([]byte, 1)); n == 0 {
		time.Sleep(time.Duration(mathrand.IntN(200)) * time.Millisecond)
	}
	return 0
}

// fakeMachine is the guest, which has one file of tokens. What is appended is in its memory until it syncs or shuts down.
type fakeMachine struct {
	agentpb.UnimplementedAgentServer
	cmd       *exec.Cmd
	life      io.Writer
	host, far net.Conn
	done      chan struct{}
	over      sync.Once
	disk      *os.File
	transfer  *os.File // nil for none
	readOnly  bool
	boot      string // differs from boot to boot
	memory    int    // MiB

	mu      sync.Mutex
	tokens  []string
	env     []string
	greeted greeted
}

// greeted is what a machine was given, as its guest tells.
type greeted struct {
	Network, NewIdentity bool
	Resumed              bool
	Forget               string
	Volumes, Caches      []string
	CacheDisk            bool
	CacheUser            string
	Disks                []string // the path, and whether it is read-only
}

func (m *fakeMachine) Agent() vm.Conn         { return m.host }
func (*fakeMachine) Directories() vm.Conn     { near, far := net.Pipe(); _ = far.Close(); return near }
func (m *fakeMachine) PID() int               { return m.cmd.Process.Pid }
func (m *fakeMachine) ConsoleTail(int) string { return "" }
func (m *fakeMachine) Confinement() []string  { return nil }
func (m *fakeMachine) Restored() bool         { return false }
func (m *fakeMachine) Done() <-chan struct{}  { return m.done }
func (m *fakeMachine) gone()                  { m.over.Do(func() { close(m.done); _ = m.far.Close() }) }

func (m *fakeMachine) Pause() error  { return m.cmd.Process.Signal(unix.SIGSTOP) }
func (m *fakeMachine) Resume() error { return m.cmd.Process.Signal(unix.SIGCONT) }

func (m *fakeMachine) Kill() error {
	_ = m.cmd.Process.Kill()
	<-m.done
	return nil
}

func (m *fakeMachine) Wait(ctx context.Context) error {
	select {
	case <-m.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (m *fakeMachine) read() error {
	b := make([]byte, 1<<20)
	n, err := m.disk.ReadAt(b, tokensAt)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	text, _, _ := bytes.Cut(b[:n], []byte{0})
	m.tokens = strings.Fields(string(text))
	return nil
}

// flush writes the file; the caller holds mu.
func (m *fakeMachine) flush() error {
	if m.readOnly {
		return nil
	}
	_, err := m.disk.WriteAt(append([]byte(strings.Join(m.tokens, "\n")), 0), tokensAt)
	return err
}

func (m *fakeMachine) Handshake(_ context.Context, r *agentpb.HandshakeRequest) (*agentpb.HandshakeResponse, error) {
	m.env = r.GetEnv()
	g := &m.greeted
	g.Network, g.NewIdentity, g.Forget = r.GetNetwork() != nil, r.GetNewIdentity(), string(r.GetTrust().GetForgetPem())
	g.Resumed = r.GetResumed()
	g.CacheDisk, g.CacheUser = r.GetRoot().GetCacheDisk() != nil, r.GetRoot().GetCacheUser()
	for _, v := range r.GetRoot().GetVolumes() {
		g.Volumes = append(g.Volumes, fmt.Sprintf("%s %t", v.GetPath(), v.GetReadOnly()))
	}
	for _, c := range r.GetRoot().GetCaches() {
		g.Caches = append(g.Caches, c.GetKey()+" "+c.GetPath())
	}
	return &agentpb.HandshakeResponse{Version: agentpb.MaxVersion, Kernel: "6.0-fake"}, nil
}

func (m *fakeMachine) SetClock(context.Context, *agentpb.SetClockRequest) (*agentpb.SetClockResponse, error) {
	return &agentpb.SetClockResponse{}, nil
}

func (m *fakeMachine) Stats(context.Context, *agentpb.StatsRequest) (*agentpb.StatsResponse, error) {
	return &agentpb.StatsResponse{ClockUnixNs: time.Now().UnixNano()}, nil
}

func (m *fakeMachine) Shutdown(context.Context, *agentpb.ShutdownRequest) (*agentpb.ShutdownResponse, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	err := m.flush()
	go func() { _, _ = m.life.Write([]byte("q")) }() // after the reply, as a guest's power is
	return &agentpb.ShutdownResponse{}, err
}

// fakeFreezer holds the guest's file for as long as the host asks.
type fakeFreezer struct {
	agentpb.UnimplementedFreezerServer
	machine *fakeMachine
}

func (f fakeFreezer) Freeze(s grpc.BidiStreamingServer[agentpb.FreezeRequest, agentpb.FreezeResponse]) error {
	f.machine.mu.Lock()
	defer f.machine.mu.Unlock()
	if _, err := s.Recv(); err != nil {
		return err
	}
	if err := f.machine.flush(); err != nil {
		return status.Error(codes.InvalidArgument, err.Error()) // as the agent's, which the session outlives
	}
	if err := s.Send(&agentpb.FreezeResponse{}); err != nil {
		return err
	}
	if _, err := s.Recv(); !errors.Is(err, io.EOF) {
		return err
	}
	return s.Send(&agentpb.FreezeResponse{})
}

// Exec knows: boot, echo, append TOKEN, sync, list, env, greeted, exit CODE, and wait for a signal.
func (m *fakeMachine) Exec(s agentpb.Agent_ExecServer) error {
	first, err := s.Recv()
	if err != nil {
		return err
	}
	argv := first.GetStart().GetArgv()
	if argv[0] == "sh" { // an SSH client's command
		argv = strings.Fields(argv[len(argv)-1])
	}
	started := &agentpb.ExecResponse{Response: &agentpb.ExecResponse_Started{Started: &agentpb.Started{Pid: 7, StdinWindow: 1 << 16}}}
	if err := s.Send(started); err != nil {
		return err
	}
	signals := make(chan uint32, 1)
	go func() {
		for {
			r, err := s.Recv()
			if err != nil {
				return
			}
			if n := r.GetSignal(); n != 0 {
				select {
				case signals <- n:
				default:
				}
			}
		}
	}()
	end := &agentpb.Exit{}
	var out string
	m.mu.Lock()
	switch argv[0] {
	case "append":
		m.tokens = append(m.tokens, argv[1])
	case "sync":
		err = m.flush()
	case "/bin/sh": // that of a change of the caches, which asks for their sizes
		out = "4\tpip\n8\tgo-build\n16\tgo-mod\n"
	case "greeted":
		out = m.greeted.text()
	case "boot":
		out = m.boot
	case "echo":
		out = strings.Join(argv[1:], " ") + "\n"
	case "list":
		out = strings.Join(m.tokens, "\n")
	case "env":
		out = strings.Join(slices.DeleteFunc(slices.Clone(m.env), func(e string) bool { return !strings.HasPrefix(e, "T_") }), "\n")
	case "exit":
		code, _ := strconv.Atoi(argv[1])
		end.Code = int32(code)
	}
	m.mu.Unlock()
	if argv[0] == "wait" {
		select {
		case n := <-signals:
			end.Code, end.Signal = 128+int32(n), n
		case <-s.Context().Done():
			return s.Context().Err()
		case <-m.done: // a machine that has gone says nothing: the host learns of it by the end of the stream
			<-s.Context().Done()
			return s.Context().Err()
		}
	}
	if err != nil {
		return err
	}
	if out != "" {
		if err := s.Send(&agentpb.ExecResponse{Response: &agentpb.ExecResponse_Stdout{Stdout: []byte(out)}}); err != nil {
			return err
		}
	}
	return s.Send(&agentpb.ExecResponse{Response: &agentpb.ExecResponse_Exit{Exit: end}})
}

// Stat says that everything is a directory.
func (fakeFiles) Stat(_ context.Context, r *agentpb.StatRequest) (*agentpb.FileInfo, error) {
	return &agentpb.FileInfo{Name: []byte(path.Base(r.GetPath())), Mode: unix.S_IFDIR | 0o755}, nil
}

// greetedBegin and greetedEnd are around what greeted.text tells, in a file among others.
const greetedBegin, greetedEnd = "greeted<", ">"

func (g *greeted) text() string {
	b, _ := json.Marshal(g) // it can be written
	return greetedBegin + string(b) + greetedEnd
}

// fakeSearch finds each text in one file.
type fakeSearch struct {
	agentpb.UnimplementedSearchServer
}

func (fakeSearch) Find(_ context.Context, r *agentpb.FindRequest) (*agentpb.FindResponse, error) {
	f := &agentpb.FindResponse{More: true}
	for _, text := range r.GetTexts() {
		f.Paths = append(f.Paths, append([]byte("/has/"), text...))
	}
	return f, nil
}

// endlessToken has a guest send archives that no disk has room for.
const endlessToken = "endless"

// fakeFiles are the guest's. An archive of its root has a file that tells how the machine was greeted, one of a cache a file
// with the key's name. What is unpacked on a volume, and removed there, becomes tokens; all else is dropped.
type fakeFiles struct {
	agentpb.UnimplementedFilesServer
	machine *fakeMachine
}

func (f fakeFiles) Pack(r *agentpb.PackRequest, s agentpb.Files_PackServer) error {
	files := map[string]string{cmp.Or(r.GetCache(), "file"): "data"}
	f.machine.mu.Lock()
	if r.GetRoot() {
		files = map[string]string{"greeted": f.machine.greeted.text(), "etc/machine-id": "the sandbox's own"}
	}
	endless := slices.Contains(f.machine.tokens, endlessToken)
	f.machine.mu.Unlock()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	var err error
	if endless {
		err = w.WriteHeader(&tar.Header{Name: "all", Mode: 0o644, Size: 1 << 60, Typeflag: tar.TypeReg})
		return errors.Join(err, s.Send(&agentpb.PackResponse{Data: b.Bytes()}), s.Send(&agentpb.PackResponse{Report: &agentpb.TreeReport{}}))
	}
	for name, text := range files {
		if err == nil {
			err = w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text)), Typeflag: tar.TypeReg})
		}
		if err == nil {
			_, err = w.Write([]byte(text))
		}
	}
	if err = errors.Join(err, w.Close()); err == nil {
		err = s.Send(&agentpb.PackResponse{Data: b.Bytes()})
	}
	return errors.Join(err, s.Send(&agentpb.PackResponse{Report: &agentpb.TreeReport{Entries: 1, Bytes: 4}}))
}

func (f fakeFiles) Unpack(s agentpb.Files_UnpackServer) error {
	to := ""
	var archive bytes.Buffer
	for {
		r, err := s.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if start := r.GetStart(); start != nil {
			to = start.GetPath()
		}
		archive.Write(r.GetData())
	}
	for in := tar.NewReader(&archive); ; {
		h, err := in.Next()
		if err != nil {
			break
		}
		f.machine.note(path.Join(to, h.Name))
	}
	return s.SendAndClose(&agentpb.TreeReport{Entries: 1, Bytes: 4})
}

// byDisk is a stream of what goes by the transfer disk: Send and Recv are those of Pack and Unpack.
type byDisk[Req, Resp any] struct {
	grpc.BidiStreamingServer[Req, Resp]
	disk       *os.File
	lane, next int
}

type (
	packByDisk   byDisk[agentpb.PackByDiskRequest, agentpb.PackByDiskResponse]
	unpackByDisk byDisk[agentpb.UnpackByDiskRequest, agentpb.UnpackByDiskResponse]
)

func (p *packByDisk) Send(m *agentpb.PackResponse) error {
	if r := m.GetReport(); r != nil {
		return p.BidiStreamingServer.Send(&agentpb.PackByDiskResponse{Response: &agentpb.PackByDiskResponse_Report{Report: r}})
	}
	if _, err := p.disk.WriteAt(m.GetData(), transfer.Offset(transfer.ToHost, p.lane, p.next)); err != nil {
		return status.Error(codes.InvalidArgument, err.Error()) // as the agent's
	}
	p.next++
	if err := p.BidiStreamingServer.Send(&agentpb.PackByDiskResponse{Response: &agentpb.PackByDiskResponse_Written{Written: uint32(len(m.GetData()))}}); err != nil {
		return err
	}
	_, err := p.Recv()
	return err
}

func (u *unpackByDisk) Recv() (*agentpb.UnpackRequest, error) {
	m, err := u.BidiStreamingServer.Recv()
	if err != nil {
		return nil, err
	}
	if start := m.GetStart(); start != nil {
		u.lane = int(start.GetLane())
		ready := &agentpb.UnpackByDiskResponse{Response: &agentpb.UnpackByDiskResponse_Ready{Ready: true}}
		return &agentpb.UnpackRequest{Request: &agentpb.UnpackRequest_Start{Start: start.GetUnpack()}}, u.Send(ready)
	}
	data := make([]byte, m.GetWritten())
	if _, err := u.disk.ReadAt(data, transfer.Offset(transfer.ToGuest, u.lane, u.next)); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	u.next++
	read := &agentpb.UnpackByDiskResponse{Response: &agentpb.UnpackByDiskResponse_Read{Read: true}}
	return &agentpb.UnpackRequest{Request: &agentpb.UnpackRequest_Data{Data: data}}, u.Send(read)
}

func (u *unpackByDisk) SendAndClose(r *agentpb.TreeReport) error {
	return u.Send(&agentpb.UnpackByDiskResponse{Response: &agentpb.UnpackByDiskResponse_Report{Report: r}})
}

func (f fakeFiles) PackByDisk(s agentpb.Files_PackByDiskServer) error {
	m, err := s.Recv()
	if err != nil {
		return err
	}
	return f.Pack(m.GetStart().GetPack(), &packByDisk{s, f.machine.transfer, int(m.GetStart().GetLane()), 0})
}

func (f fakeFiles) UnpackByDisk(s agentpb.Files_UnpackByDiskServer) error {
	return f.Unpack(&unpackByDisk{BidiStreamingServer: s, disk: f.machine.transfer})
}

func (f fakeFiles) Change(_ context.Context, r *agentpb.ChangeRequest) (*agentpb.ChangeResponse, error) {
	if gone := r.GetRemove(); gone != nil {
		f.machine.note(gone.GetPath() + "-removed")
	}
	return &agentpb.ChangeResponse{}, nil
}

// note makes a token of what was done at a path of a volume.
func (m *fakeMachine) note(path string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if name, ok := strings.CutPrefix(path, VolumeRoot+"/"); ok && slices.Contains(m.greeted.Volumes, VolumeRoot+" false") {
		m.tokens = append(m.tokens, name)
	}
}
