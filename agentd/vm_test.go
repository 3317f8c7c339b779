//go:build vmtest && linux && amd64

package agentd_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Microsoft/hcsshim/ext4/tar2ext4"

	"github.com/msb-project/msb/agentd"
	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/internal/guest/assets"
	"github.com/msb-project/msb/internal/vm"
	"github.com/msb-project/msb/internal/vm/qemu"
	"github.com/msb-project/msb/internal/vm/runner"
	"github.com/msb-project/msb/internal/vm/vmtest"
)

// scratch is a directory for what the VM tests share; TestMain removes it.
var scratch string

// TestMain lets the test's own program be the VMM's runner, as msb is.
func TestMain(m *testing.M) {
	if code, ok := agentd.RunOwnProgram(); ok {
		os.Exit(code)
	}
	if len(os.Args) > 1 && os.Args[1] == runner.Verb {
		os.Exit(runner.Main())
	}
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	if err := vmtest.FindLibraries(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	dir, err := os.MkdirTemp("", "msb-agentd-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	scratch = dir
	return m.Run()
}

// machine is a booted guest with its session.
type machine struct {
	vm.Machine
	client *agentclient.Client
}

// startVM boots the embedded agent with the builtin image as its root.
func startVM(t *testing.T, memoryMiB int, more ...vm.Disk) vm.Machine {
	t.Helper()
	spec := vm.Spec{
		CPUs: 1, MemoryMiB: memoryMiB, ConsoleLog: filepath.Join(t.TempDir(), "console.log"),
		Cmdline: []string{"no_timer_check"},
		Disks: append([]vm.Disk{
			{Path: agentDisk(t), ReadOnly: true, ID: "agentd"},
			{Path: imageDisk(t), ReadOnly: true, ID: "image"},
		}, more...),
	}
	m, err := qemu.New(qemu.Config{CacheDir: scratch}).Start(t.Context(), spec)
	if err != nil {
		t.Fatalf("start the machine: %v", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("console:\n%s", m.ConsoleTail(4096))
		}
		if err := m.Kill(); err != nil {
			t.Errorf("kill: %v", err)
		}
	})
	return m
}

func bootVM(t *testing.T, opts agentclient.Options, more ...vm.Disk) *machine {
	t.Helper()
	m := startVM(t, 256, more...)
	if opts.Root == nil {
		opts.Root = &agentclient.Root{Image: agentclient.Disk{Serial: "image"}}
	}
	client, err := agentclient.Dial(t.Context(), m.Agent(), opts)
	if err != nil {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		t.Fatalf("%v; the machine ended with: %v", err, m.Wait(ctx))
	}
	t.Cleanup(func() { client.Close() })
	return &machine{Machine: m, client: client}
}

// sh runs a script and returns its output and status.
func (m *machine) sh(t *testing.T, script string, change ...func(*agentclient.ExecOptions)) (string, agentclient.ExitStatus) {
	t.Helper()
	var out bytes.Buffer
	opts := agentclient.ExecOptions{Argv: []string{"/bin/sh", "-c", script}, Stdout: &out, Stderr: &out}
	for _, c := range change {
		c(&opts)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	st, err := m.client.Exec(ctx, opts)
	if err != nil {
		t.Fatalf("exec %q: %v", script, err)
	}
	return out.String(), st
}

func (m *machine) want(t *testing.T, script, want string, change ...func(*agentclient.ExecOptions)) {
	t.Helper()
	got, st := m.sh(t, script, change...)
	if strings.TrimSpace(got) != want || st.Code != 0 {
		t.Errorf("%s:\ngot  %q (status %+v)\nwant %q", script, got, st, want)
	}
}

func agentDisk(t *testing.T) string {
	t.Helper()
	return part(t, assets.AgentRoot(), "agentd.ext4", func(dst *os.File, src io.Reader) error {
		_, err := io.Copy(dst, src)
		return err
	})
}

func imageDisk(t *testing.T) string {
	t.Helper()
	return part(t, assets.Builtin(), "builtin.ext4", func(dst *os.File, src io.Reader) error {
		return tar2ext4.ConvertTarToExt4(src, dst)
	})
}

// part unpacks an embedded part once for all tests.
func part(t *testing.T, p assets.Part, name string, unpack func(*os.File, io.Reader) error) string {
	t.Helper()
	path := filepath.Join(scratch, name)
	if _, err := os.Stat(path); err == nil {
		return path
	}
	r, err := p.Open()
	if err != nil {
		t.Fatalf("the VM tests boot the embedded guest: %v", err)
	}
	defer r.Close()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unpack(f, r); err != nil {
		t.Fatal(err)
	}
	return path
}

func upperDisk(t *testing.T) vm.Disk {
	t.Helper()
	path := filepath.Join(t.TempDir(), "upper.ext4")
	vmtest.Ext4(t, t.TempDir(), path, 64)
	return vm.Disk{Path: path, ID: "upper"}
}
