//go:build linux

package workload

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestMain lets the test's own program be the first one of a container's processes, or reap as PID 1.
func TestMain(m *testing.M) {
	if os.Args[0] == ContainerStageName {
		os.Exit(RunContainerStage())
	}
	if os.Args[0] == reaperTest {
		os.Exit(reapAll())
	}
	os.Exit(m.Run())
}

// bench makes containers on this kernel.
type bench struct {
	t       *testing.T
	cgroups *Cgroups
	reaper  *Reaper
	root    string
	count   int
}

func newBench(t *testing.T) *bench {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root makes namespaces here")
	}
	box, err := exec.LookPath("busybox")
	if err != nil {
		t.Skip("there is no busybox")
	}
	mount := t.TempDir()
	if err := unix.Mount("none", mount, "cgroup2", 0, ""); err != nil {
		t.Skip("no control groups here: ", err)
	}
	top := filepath.Join(mount, fmt.Sprintf("msb-test-%d-%d", os.Getpid(), time.Now().UnixNano()))
	if err := os.Mkdir(top, 0o755); err != nil {
		_ = unix.Unmount(mount, unix.MNT_DETACH)
		t.Skip("no control groups here: ", err)
	}
	b := &bench{t: t, reaper: NewReaper(false), root: t.TempDir()}
	t.Cleanup(func() {
		b.reaper.Close()
		if err := errors.Join(os.Remove(filepath.Join(top, "msb")), os.Remove(top), unix.Unmount(mount, 0)); err != nil {
			t.Error("something is left: ", err)
		}
	})
	if b.cgroups, err = NewCgroups(top, Limits{}); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(b.root, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(box)
	if err == nil {
		err = os.WriteFile(filepath.Join(b.root, "bin/busybox"), program, 0o755)
	}
	for _, name := range strings.Fields("sh cat sleep grep id") {
		err = errors.Join(err, os.Symlink("busybox", filepath.Join(b.root, "bin", name)))
	}
	if err = errors.Join(err, os.Chmod(b.root, 0o755)); err != nil {
		t.Fatal(err)
	}
	return b
}

func mounted(t *testing.T, kind string, options ...[2]string) *os.File {
	t.Helper()
	fd, err := newMount(kind, 0, options...)
	if err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fd), kind)
}

// add makes a container of a shell line.
func (b *bench) add(line string, change func(*ContainerSetup, *ContainerProcess)) (*Container, error) {
	b.t.Helper()
	setup := &ContainerSetup{Place: b.t.TempDir(), Hostname: "box", Mounts: []ContainerMount{{Type: "proc", Target: "/proc"}}, ReadOnlyPaths: []string{"/proc/sys"}, MaskedPaths: []string{"/proc/uptime", "/none"}}
	p := &ContainerProcess{Args: []string{"sh", "-c", line}, Env: []string{"PATH=/bin"}}
	if change != nil {
		change(setup, p)
	}
	b.count++
	group, err := b.cgroups.NewNamed(fmt.Sprintf("container-%d", b.count))
	if err != nil {
		b.t.Fatal(err)
	}
	root, err := unix.OpenTree(unix.AT_FDCWD, b.root, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		b.t.Fatal(err)
	}
	files := ContainerFiles{Root: os.NewFile(uintptr(root), "root"), PTS: mounted(b.t, "devpts", [2]string{"ptmxmode", "0666"})}
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	defer cancel()
	c, err := NewContainer(ctx, b.reaper, group, setup, p, files)
	b.t.Cleanup(func() {
		if c != nil {
			c.Close()
		}
		if err := errors.Join(group.Settle(time.Minute), group.Remove()); err != nil {
			b.t.Error(err)
		}
	})
	return c, err
}

// run runs a process to its end.
func (b *bench) run(p *Process, err error) (string, syscall.WaitStatus) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
	_ = p.Stdin.Close()
	out, _ := io.ReadAll(p.Stdout) // a terminal ends with an error
	if p.Stderr != nil {
		more, err := io.ReadAll(p.Stderr)
		if err != nil {
			b.t.Fatal(err)
		}
		out = append(out, more...)
	}
	<-p.Done()
	return string(out), p.Status()
}

// TestContainersHaveTheirOwnSettings of each kind. It makes containers as the guest's agent does, on this machine's
// kernel.
func TestContainersHaveTheirOwnSettings(t *testing.T) {
	b := newBench(t)
	umask, oom := uint32(0o77), int32(500)
	c, err := b.add("echo $$; cat /proc/sys/kernel/hostname /proc/self/oom_score_adj; umask; id -u; id -G; ulimit -n; grep -E 'CapBnd|CapEff|NoNewPrivs' /proc/self/status; exec sleep 1000", func(s *ContainerSetup, p *ContainerProcess) {
		p.UID, p.GID, p.Groups, p.Umask, p.OOMScoreAdj, p.NoNewPrivileges = 7, 8, []uint32{9}, &umask, &oom, true
		p.Capabilities = CapabilitySets{Bounding: 1<<5 | 1, Permitted: 1 << 5, Effective: 1 << 5, Inheritable: 1 << 5, Ambient: 1 << 5}
		p.Rlimits = []Rlimit{{"RLIMIT_NOFILE", 77, 88}}
		s.ReadOnlyRoot = true
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Exec(&ContainerProcess{Args: []string{"sh"}}); !errors.Is(err, ErrRequest) {
		t.Errorf("a process before the first one: %v", err)
	}
	p, err := c.Start()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Start(); !errors.Is(err, ErrRequest) {
		t.Errorf("a second start: %v", err)
	}
	want := "1\nbox\n500\n0077\n7\n8 9\n77\nCapEff:\t0000000000000020\nCapBnd:\t0000000000000021\nNoNewPrivs:\t1\n"
	got := make([]byte, len(want))
	if _, err := io.ReadFull(p.Stdout, got); err != nil || string(got) != want {
		t.Errorf("got %q, want %q, %v", got, want, err)
	}
	line := "until grep -q sleep /proc/1/comm; do :; done; echo $$; echo x > /new; echo x > /proc/sys/kernel/hostname; cat /proc/uptime | grep -c ."
	out, st := b.run(c.Exec(&ContainerProcess{Args: []string{"sh", "-c", line}, Env: []string{"PATH=/bin"}}))
	if st.ExitStatus() != 1 || strings.HasPrefix(out, "1\n") || !strings.Contains(out, "\n0\n") || strings.Count(out, "Read-only file system") != 2 {
		t.Errorf("%q, %v", out, st)
	}
	if pids, err := c.Group().Procs(10); err != nil || len(pids) != 1 || pids[0] != p.PID {
		t.Errorf("processes %v, %v", pids, err)
	}
	if out, _ = b.run(c.Exec(&ContainerProcess{Args: []string{"cat"}, Env: []string{"PATH=/bin"}, TTY: true})); out != "" {
		t.Errorf("%q", out)
	}
	for args, code := range map[string]int{"none": 127, "/proc/self/status": 126} {
		_, err := c.Exec(&ContainerProcess{Args: []string{args}, Env: []string{"PATH=/bin"}})
		if se := (*StartError)(nil); !errors.As(err, &se) || se.Code() != code {
			t.Errorf("%s: %v", args, err)
		}
	}
	if err := c.Group().Freeze(true, nil); err != nil {
		t.Error(err)
	}
	if !p.Signal(syscall.SIGKILL) {
		t.Error("the first process is not there")
	}
	if err := c.Group().Freeze(false, nil); err != nil {
		t.Error(err)
	}
	<-p.Done()
	if p.Status().Signal() != syscall.SIGKILL || p.Signal(syscall.SIGKILL) || c.Running() {
		t.Errorf("%v", p.Status())
	}
	if _, err := c.Exec(&ContainerProcess{Args: []string{"sh"}}); !errors.Is(err, ErrRequest) {
		t.Errorf("a process behind the first one: %v", err)
	}
}

// TestContainersEndWithTheirFirstProcess: whatever else runs in them.
func TestContainersEndWithTheirFirstProcess(t *testing.T) {
	b := newBench(t)
	c, err := b.add("sleep 1000 & (trap '' TERM HUP INT; sleep 1000) & exit 5", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, st := b.run(c.Start()); st.ExitStatus() != 5 {
		t.Errorf("%v", st)
	}
	if err := c.Group().Settle(time.Minute); err != nil {
		t.Error(err)
	}
}

// TestI14_LinksOfRootsLeadNowhere: a root has links where mounts are to be.
func TestI14_LinksOfRootsLeadNowhere(t *testing.T) {
	for name, to := range map[string]string{"proc": "/bin", "dev": "../../../../tmp"} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			if err := os.Symlink(to, filepath.Join(b.root, name)); err != nil {
				t.Fatal(err)
			}
			if _, err := b.add("true", nil); !errors.Is(err, ErrRequest) || !strings.Contains(err.Error(), "link") {
				t.Errorf("got %v", err)
			}
		})
	}
	b := newBench(t)
	outside := t.TempDir()
	if err := os.Symlink("../../../.."+outside+"/deep", filepath.Join(b.root, "data")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/away", filepath.Join(b.root, "bin", "link")); err != nil {
		t.Fatal(err)
	}
	c, err := b.add("echo x > /data/f && cat /data/f && grep -c ' /away tmpfs' /proc/mounts", func(s *ContainerSetup, p *ContainerProcess) {
		s.Mounts = append(s.Mounts, ContainerMount{Type: "tmpfs", Target: "/data"}, ContainerMount{Type: "tmpfs", Target: "/bin/link"})
		p.Cwd = "/data/made"
	})
	if err != nil {
		t.Fatal(err)
	}
	if out, st := b.run(c.Start()); out != "x\n1\n" || st.ExitStatus() != 0 {
		t.Errorf("%q, %v", out, st)
	}
	if all, err := os.ReadDir(outside); err != nil || len(all) > 0 {
		t.Errorf("%v, %v", all, err)
	}
}

// TestContainersTrustTheCA: in its root's lists, though that is read-only for the container, and by variables that its own
// replace. The twin has neither.
func TestContainersTrustTheCA(t *testing.T) {
	b := newBench(t)
	der := make([]byte, 64)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := errors.Join(os.MkdirAll(filepath.Join(b.root, "etc/ssl"), 0o755), os.WriteFile(filepath.Join(b.root, "etc/ssl/cert.pem"), []byte("image's own\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	const line = "cat /etc/ssl/cert.pem; echo $SSL_CERT_FILE $CURL_CA_BUNDLE"
	start := func(trust bool) string {
		c, err := b.add(line, func(s *ContainerSetup, p *ContainerProcess) {
			s.ReadOnlyRoot = true
			if trust {
				s.CA, p.TrustEnv, p.Env = ca, true, append(p.Env, "CURL_CA_BUNDLE=/own")
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		out, _ := b.run(c.Start())
		return out
	}
	if got := start(false); got != "image's own\n\n" {
		t.Errorf("without a CA: %q", got)
	}
	if got, want := start(true), "image's own\n"+string(ca)+"/etc/ssl/cert.pem /own\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
