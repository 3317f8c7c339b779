//go:build !containerdtest

package shim

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	bootapi "github.com/containerd/containerd/api/runtime/bootstrap/v1"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"golang.org/x/sys/unix"
)

// envShim makes this program a shim: `start` is containerd's call in a bundle, which it answers with an address, and without that it
// is what Start has started. Then it tells each client of its socket how.
const envShim = "MSB_TEST_AS_SHIM"

// served is what it tells.
type served struct {
	Args       []string
	PID, Group int
	Dir, OOM   string
}

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(envShim) == "":
		os.Exit(m.Run())
	case os.Args[1] == "start":
		level, _ := strconv.Atoi(os.Args[3])
		ctx := namespaces.WithNamespace(context.Background(), "test")
		r, err := NewManager().Start(ctx, &bootapi.BootstrapParams{
			InstanceID: os.Args[2], SocketDir: ptr(os.Getenv(envShim)), ContainerdGrpcAddress: "/run/c.sock", LogLevel: bootapi.LogLevel(level),
		})
		if err != nil || r.Protocol != "ttrpc" || r.Version != 3 {
			log.Fatal(r, err)
		}
		_, _ = os.Stdout.WriteString(r.Address)
		os.Exit(0)
	}
	time.AfterFunc(2*patience, func() { os.Exit(1) })
	l, err := net.FileListener(os.NewFile(3, "socket"))
	if err != nil {
		panic(err)
	}
	for {
		c, err := l.Accept()
		if err != nil {
			panic(err)
		}
		dir, _ := os.Getwd()
		oom, _ := os.ReadFile("/proc/self/oom_score_adj")
		_ = json.NewEncoder(c).Encode(served{os.Args[1:], os.Getpid(), unix.Getpgrp(), dir, strings.TrimSpace(string(oom))})
		go func() { _, _ = io.Copy(io.Discard, c) }() // keeps it open until the client, or this program, ends
	}
}

// TestOneShimForAPod: the first container's start makes the shim, in its bundle and its own process group; containers of the same pod
// get its address, others one of their own. A shim that was killed is replaced, and a start that fails leaves no socket.
func TestOneShimForAPod(t *testing.T) {
	dir := t.TempDir()
	sockets, err := os.MkdirTemp("", "s") // an address has few bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(sockets) })
	level := "0"
	start := func(id, pod string) (string, error) {
		t.Helper()
		bundle := filepath.Join(dir, id)
		spec := baseSpec()
		if pod != "" {
			spec = podSpec("container", pod)
		}
		b, err := json.Marshal(spec)
		if err = errors.Join(err, os.MkdirAll(bundle, 0o700), os.WriteFile(filepath.Join(bundle, "config.json"), b, 0o600)); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), os.Args[0], "start", id, level)
		cmd.Dir, cmd.Env = bundle, append(os.Environ(), envShim+"="+sockets)
		out, err := cmd.Output()
		return string(out), err
	}
	var last net.Conn
	ask := func(address string) (s served) {
		t.Helper()
		c, err := (&net.Dialer{Timeout: patience}).DialContext(t.Context(), "unix", strings.TrimPrefix(address, "unix://"))
		if err != nil {
			t.Fatal(err)
		}
		last = c
		if err := json.NewDecoder(c).Decode(&s); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = c.Close(), syscall.Kill(s.PID, syscall.SIGKILL) })
		return s
	}
	must := func(id, pod string) (string, served) {
		t.Helper()
		address, err := start(id, pod)
		if err != nil {
			t.Fatal(err)
		}
		return address, ask(address)
	}
	address, first := must("pod", "pod")
	if want := []string{"-namespace", "test", "-id", "pod", "-address", "/run/c.sock"}; !slices.Equal(first.Args, want) {
		t.Errorf("the shim was started with %q, want %q", first.Args, want)
	}
	if first.Dir != realPath(filepath.Join(dir, "pod")) || first.Group != first.PID || first.PID == os.Getpid() {
		t.Errorf("the shim is in %s, and its group's leader is %d: %+v", first.Dir, first.Group, first)
	}
	if parent, err := os.ReadFile("/proc/self/oom_score_adj"); err == nil { // the starting process's parent, as containerd is
		if n, _ := strconv.Atoi(strings.TrimSpace(string(parent))); n < 1000 && first.OOM != strconv.Itoa(n+1) {
			t.Errorf("the shim's OOM score is adjusted by %s, containerd's by %d", first.OOM, n)
		}
	}
	if b, err := os.ReadFile(filepath.Join(dir, "pod", addressFile)); err != nil || string(b) != address {
		t.Errorf("the bundle has the address %q, %v", b, err)
	}
	joined, same := must("a", "pod")
	if joined != address || same.PID != first.PID {
		t.Errorf("a container of the pod got %s, %+v", joined, same)
	}
	if _, err := os.Stat(filepath.Join(dir, "a", addressFile)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the bundle of a container that joins has an address: %v", err)
	}
	if other, second := must("b", ""); other == address || second.PID == first.PID {
		t.Errorf("a container alone got %s, %+v", other, second)
	}
	level = strconv.Itoa(int(bootapi.LogLevel_LOG_LEVEL_DEBUG))
	ask(address)
	if err := syscall.Kill(first.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, last) // until it has gone
	if again, third := must("pod", "pod"); again != address || third.PID == first.PID || !slices.Contains(third.Args, "-debug") {
		t.Errorf("after the shim was killed: %s, %+v", again, third)
	}
	before, err := os.ReadDir(sockets)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "c", addressFile), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := start("c", ""); err == nil {
		t.Error("a start whose address can't be written")
	}
	if after, err := os.ReadDir(sockets); err != nil || len(after) != len(before) {
		t.Errorf("sockets %v, before %v, %v", after, before, err)
	}
}
