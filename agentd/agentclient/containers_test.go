package agentclient

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msb-project/msb/agentd/agentpb"
)

// fakeContainers is a guest's service that says what a test wants.
type fakeContainers struct {
	agentpb.UnimplementedContainersServer
	mu      sync.Mutex
	created []*agentpb.CreateContainerRequest
	refuse  error
	hang    chan struct{} // a call's answer doesn't come while there is one; it is received from when the call is there
	deleted []string
	sockets []*agentpb.ListeningSocket
}

func (f *fakeContainers) Create(ctx context.Context, r *agentpb.CreateContainerRequest) (*agentpb.CreateContainerResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.created = append(f.created, r)
	if f.hang != nil {
		f.hang <- struct{}{}
		<-ctx.Done()
	}
	return &agentpb.CreateContainerResponse{Pid: 7}, f.refuse
}

func (f *fakeContainers) Delete(ctx context.Context, r *agentpb.DeleteContainerRequest) (*agentpb.DeleteContainerResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if slices.Contains(f.deleted, r.GetContainer()) {
		return nil, status.Error(codes.NotFound, "there is no such container")
	}
	f.deleted = append(f.deleted, r.GetContainer())
	if f.hang != nil {
		f.hang <- struct{}{}
		<-ctx.Done()
	}
	return &agentpb.DeleteContainerResponse{}, nil
}

func (f *fakeContainers) ListeningSockets(context.Context, *agentpb.ListeningSocketsRequest) (*agentpb.ListeningSocketsResponse, error) {
	return &agentpb.ListeningSocketsResponse{Sockets: f.sockets}, nil
}

// attachContainers serves a fake guest on and attaches to it.
func attachContainers(t *testing.T, f *fakeContainers, d *ContainerDirectories) Containers {
	t.Helper()
	c := dialFake(t, &fakeAgent{containers: f})
	lis, err := net.Listen("unix", filepath.Join(t.TempDir(), "agent.sock"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- Serve(ctx, lis, c, Services{Containers: d}) }()
	t.Cleanup(func() { cancel(); <-served })
	conn, err := net.Dial("unix", lis.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	a, err := Attach(conn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	return a.Containers()
}

// TestI14_GuestsSeeNoPathsOfContainers: the guest gets numbers in their place, and what was served is released when the
// container is deleted, or was refused.
func TestI14_GuestsSeeNoPathsOfContainers(t *testing.T) {
	t.Parallel()
	f := &fakeContainers{}
	serving, last := map[HostDirectory]bool{}, uint32(0)
	var mu sync.Mutex
	d := NewContainerDirectories(func(d HostDirectory) (uint32, func(), error) {
		mu.Lock()
		defer mu.Unlock()
		if d.Path == "/none" {
			return 0, nil, errors.New("there is no /none")
		}
		last++
		serving[d] = true
		return last, func() {
			mu.Lock()
			defer mu.Unlock()
			delete(serving, d)
		}, nil
	})
	left := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(serving)
	}
	a := attachContainers(t, f, d)
	cfg := ContainerConfig{ID: "a", Root: "/root-of-it", Mounts: []ContainerMount{
		{Type: "proc", Target: "/proc"},
		{Type: "bind", Source: "/etc/hosts", Target: "/etc/hosts", ReadOnly: true},
		{Type: "bind", Source: "/data", Target: "/data"},
	}}
	pid, err := a.Create(t.Context(), &cfg, []bool{false, true, false})
	if err != nil || pid != 7 {
		t.Fatal(pid, err)
	}
	for _, want := range []HostDirectory{{Path: "/root-of-it", ReadOnly: true}, {Path: "/etc/hosts", File: true, ReadOnly: true}, {Path: "/data"}} {
		if !serving[want] {
			t.Errorf("%+v is not served: %+v", want, serving)
		}
	}
	got := f.created[0]
	if got.GetRoot().GetNumber() != 1 || got.GetMounts()[1].GetSource().GetNumber() != 2 || !got.GetMounts()[1].GetSource().GetFile() || got.GetMounts()[2].GetSource().GetNumber() != 3 {
		t.Errorf("%v", got)
	}
	if text := fmt.Sprint(got); strings.Contains(text, "root-of-it") {
		t.Errorf("the guest sees %s", text)
	}
	for name, change := range map[string]func(*ContainerConfig){
		"the guest": func(*ContainerConfig) { f.refuse = errNoContainers },
		"no /none":  func(c *ContainerConfig) { c.Mounts[2].Source = "/none" },
		"mounts: ":  func(c *ContainerConfig) { c.Mounts = make([]ContainerMount, agentpb.MaxContainerMounts+1) },
	} {
		f.refuse = nil
		bad := cfg
		bad.ID, bad.Root, bad.Mounts = "b", "/other", append([]ContainerMount{}, cfg.Mounts...)
		change(&bad)
		if _, err := a.Create(t.Context(), &bad, nil); !errors.Is(err, ErrRefused) {
			t.Errorf("%s: %v", name, err)
		}
		if mu.Lock(); serving[HostDirectory{Path: "/other", ReadOnly: true}] {
			t.Errorf("%s: it is still served", name)
		}
		mu.Unlock()
	}
	if err := a.Delete(t.Context(), "a"); err != nil || left() != 0 || d.all != 0 {
		t.Errorf("%d are left, %d counted, %v", left(), d.all, err)
	}
}

// TestContainersWhoseCallerGivesUp: what the guest did while nobody waited for the answer is known all the same: a container that
// was made is deleted, and one that was deleted can be deleted once more. Nothing of either stays served.
func TestContainersWhoseCallerGivesUp(t *testing.T) {
	t.Parallel()
	f := &fakeContainers{}
	served := make(chan struct{}, 8)
	d := NewContainerDirectories(func(HostDirectory) (uint32, func(), error) { return 1, func() { served <- struct{}{} }, nil })
	a := attachContainers(t, f, d)
	if _, err := a.Create(t.Context(), &ContainerConfig{ID: "a", Root: "/r"}, nil); err != nil {
		t.Fatal(err)
	}
	hang := make(chan struct{})
	giveUp := func(call func(context.Context) error) {
		t.Helper()
		f.mu.Lock()
		f.hang = hang
		f.mu.Unlock()
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-hang; f.hang = nil; cancel() }()
		if err := call(ctx); err == nil {
			t.Error("a call that was given up succeeds")
		}
	}
	giveUp(func(ctx context.Context) error { return a.Delete(ctx, "a") })
	if err := a.Delete(t.Context(), "a"); err != nil {
		t.Errorf("once more: %v", err)
	}
	<-served
	giveUp(func(ctx context.Context) error {
		_, err := a.Create(ctx, &ContainerConfig{ID: "b", Root: "/r"}, nil)
		return err
	})
	<-served
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.Equal(f.deleted, []string{"a", "b"}) {
		t.Errorf("deleted: %q", f.deleted)
	}
}

// TestI11_DirectoriesOfContainersAreBounded: above the bound a container is refused, and what it had is released.
func TestI11_DirectoriesOfContainersAreBounded(t *testing.T) {
	t.Parallel()
	f := &fakeContainers{}
	d := NewContainerDirectories(func(HostDirectory) (uint32, func(), error) { return 1, func() {}, nil })
	a := attachContainers(t, f, d)
	mounts := make([]ContainerMount, agentpb.MaxContainerMounts)
	for i := range mounts {
		mounts[i] = ContainerMount{Type: "bind", Source: "/x", Target: "/x"}
	}
	var err error
	n := 0
	for ; err == nil && n < agentpb.MaxDirectories; n++ {
		_, err = a.Create(t.Context(), &ContainerConfig{ID: fmt.Sprint(n), Root: "/r", Mounts: mounts}, nil)
	}
	if !errors.Is(err, ErrBusy) || n != agentpb.MaxDirectories/(agentpb.MaxContainerMounts+1)+1 {
		t.Errorf("%d containers, %v", n, err)
	}
	if d.all != (n-1)*(agentpb.MaxContainerMounts+1) {
		t.Errorf("%d are counted", d.all)
	}
}

// TestSandboxesRefuseContainers: one that was not started for them.
func TestSandboxesRefuseContainers(t *testing.T) {
	t.Parallel()
	f := &fakeContainers{}
	a := attachContainers(t, f, nil)
	if _, err := a.Create(t.Context(), &ContainerConfig{ID: "a", Root: "/"}, nil); !errors.Is(err, ErrRefused) || len(f.created) > 0 {
		t.Errorf("%v, %v", err, f.created)
	}
	if err := a.Delete(t.Context(), "a"); !errors.Is(err, ErrRefused) {
		t.Error(err)
	}
}

// TestI12_ImpossibleSocketsEndTheSession: a guest's list of sockets opens ports of the host.
func TestI12_ImpossibleSocketsEndTheSession(t *testing.T) {
	t.Parallel()
	good := &agentpb.ListeningSocket{Network: "tcp", Address: []byte{127, 0, 0, 1}, Port: 80}
	for name, bad := range map[string]*agentpb.ListeningSocket{
		"": nil, "network": {Network: "unix", Address: good.Address, Port: 80}, "address": {Network: "tcp", Address: []byte{1}, Port: 80},
		"no port": {Network: "udp", Address: good.Address}, "port": {Network: "tcp", Address: good.Address, Port: 1 << 16},
	} {
		f := &fakeContainers{sockets: []*agentpb.ListeningSocket{good}}
		if bad != nil {
			f.sockets = append(f.sockets, bad)
		}
		c := dialFake(t, &fakeAgent{containers: f})
		all, err := c.Containers().ListeningSockets(t.Context())
		if bad == nil && (err != nil || len(all) != 1 || all[0].Address.String() != "127.0.0.1:80") || bad != nil && !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %v, %v", name, all, err)
		}
	}
}
