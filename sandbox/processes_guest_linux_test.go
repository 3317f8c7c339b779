package sandbox

import (
	"errors"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"github.com/msb-project/msb/agentd/agentpb"
)

// procGuest is a guest with a /proc. A file that it doesn't have was that of a process which has just ended.
type procGuest struct {
	agentpb.UnimplementedFilesServer
	listed  []string
	files   map[string]string     // by their paths in /proc
	refuses map[string]unix.Errno // by their paths in /proc
	reads   int
}

func (g *procGuest) List(r *agentpb.ListRequest, s grpc.ServerStreamingServer[agentpb.ListResponse]) error {
	all := make([]*agentpb.FileInfo, 0, len(g.listed))
	for _, name := range g.listed {
		all = append(all, &agentpb.FileInfo{Name: []byte(name), Mode: aDirectory})
	}
	return s.Send(&agentpb.ListResponse{Entries: all})
}

func (g *procGuest) Read(r *agentpb.ReadRequest, s grpc.ServerStreamingServer[agentpb.ReadResponse]) error {
	g.reads++
	name := path.Join(path.Base(path.Dir(r.GetPath())), path.Base(r.GetPath()))
	text, ok := g.files[name]
	if number := g.refuses[name]; number != 0 {
		return refusal("open", r.GetPath(), number)
	}
	if !ok {
		return refusal("open", r.GetPath(), unix.ENOENT)
	}
	return s.Send(&agentpb.ReadResponse{Data: []byte(text)})
}

// add has the guest list a process, with these files of it.
func (g *procGuest) add(pid, parent, command string) {
	g.listed = append(g.listed, pid)
	g.files[pid+"/status"], g.files[pid+"/cmdline"] = "Name:\tx\nPPid:\t"+parent+"\n", command
}

func (g *procGuest) sandbox(t *testing.T) *Sandbox {
	t.Helper()
	return sandboxServedBy(t, func(srv *grpc.Server) { agentpb.RegisterFilesServer(srv, g) })
}

func (g *procGuest) pids(t *testing.T) (pids []int, err error) {
	t.Helper()
	all, err := g.sandbox(t).Processes(t.Context())
	for _, p := range all {
		pids = append(pids, p.PID)
	}
	return pids, err
}

// TestProcessesAreTheWorkloads: neither the agent nor the kernel's threads are shown, and one that ends while it is read is
// no error. One that can't be read is.
func TestProcessesAreTheWorkloads(t *testing.T) {
	t.Parallel()
	g := &procGuest{listed: []string{"self", "4"}, files: map[string]string{}, refuses: map[string]unix.Errno{}}
	g.add("1", "0", "agentd")
	g.add("10", "7", "child")
	g.add("2", "0", "")
	g.add("3", "2", "")
	g.add("7", "1", "sh")
	g.add("8", "7", "ended")
	g.refuses["8/cmdline"] = unix.ESRCH
	if pids, err := g.pids(t); err != nil || !slices.Equal(pids, []int{7, 10}) {
		t.Errorf("%v, %v", pids, err)
	}
	g.refuses["8/cmdline"] = unix.EACCES
	if pids, err := g.pids(t); !errors.Is(err, fs.ErrPermission) || pids != nil {
		t.Errorf("unreadable: %v, %v", pids, err)
	}
}

// TestI11_ReadProcessesAreBounded: a guest lists more than there can be, none of which is there when it is read.
func TestI11_ReadProcessesAreBounded(t *testing.T) {
	t.Parallel()
	const most = 10
	g := &procGuest{}
	for i := range 10 * most {
		g.listed = append(g.listed, strconv.Itoa(kernelThreads+1+i))
	}
	if all, err := readProcesses(t.Context(), g.sandbox(t), most); err != nil || len(all) != 0 || g.reads != most {
		t.Errorf("%d processes, %v, after %d reads", len(all), err, g.reads)
	}
}
