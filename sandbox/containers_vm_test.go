//go:build vmtest && linux

package sandbox_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/sandbox"
)

// containerRoot is a root file system of a static busybox.
func containerRoot(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for _, d := range []string{"bin", "etc", "tmp", "root", "home/user"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	box, err := exec.LookPath("busybox")
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(box)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(root, "bin/busybox"), string(b), 0o755)
	for _, applet := range strings.Fields("sh cat ls echo id sleep hostname touch env pwd stat ps kill grep tty stty mknod mount mkdir dd head test true nc ln readlink umask chmod wc tail sed awk sync rm printf mkfifo") {
		if err := os.Symlink("busybox", filepath.Join(root, "bin", applet)); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(root, "etc/passwd"), "root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n", 0o644)
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	return root
}

func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

// usualCapabilities are those that containerd gives.
var usualCapabilities = strings.Fields(`CAP_CHOWN CAP_DAC_OVERRIDE CAP_FSETID CAP_FOWNER CAP_MKNOD CAP_NET_RAW CAP_SETGID CAP_SETUID
	CAP_SETFCAP CAP_SETPCAP CAP_NET_BIND_SERVICE CAP_SYS_CHROOT CAP_KILL CAP_AUDIT_WRITE`)

// containerConfig is what containerd's CRI describes.
func containerConfig(t *testing.T, id string, args ...string) sandbox.ContainerConfig {
	t.Helper()
	c := usualCapabilities
	return sandbox.ContainerConfig{
		ID: id, Root: containerRoot(t), Hostname: "pod",
		Mounts: []sandbox.ContainerMount{
			{Type: "proc", Target: "/proc", NoSuid: true, NoDev: true, NoExec: true},
			{Type: "tmpfs", Target: "/dev", NoSuid: true},
			{Type: "devpts", Target: "/dev/pts", NoSuid: true, NoExec: true},
			{Type: "mqueue", Target: "/dev/mqueue", NoSuid: true, NoDev: true, NoExec: true},
			{Type: "sysfs", Target: "/sys", NoSuid: true, NoDev: true, NoExec: true, ReadOnly: true},
			{Type: "cgroup", Target: "/sys/fs/cgroup", NoSuid: true, NoDev: true, NoExec: true, ReadOnly: true},
			{Type: "tmpfs", Target: "/dev/shm", NoSuid: true, NoDev: true, NoExec: true, SizeBytes: 1 << 20},
		},
		MaskedPaths: []string{"/proc/kcore", "/proc/acpi", "/proc/keys", "/sys/firmware", "/proc/none"}, ReadOnlyPaths: []string{"/proc/sys", "/proc/sysrq-trigger"},
		Process: sandbox.ContainerProcess{
			Args: args, Env: []string{"PATH=/bin", "GREETING=hello"}, Cwd: "/",
			Capabilities: sandbox.Capabilities{Bounding: c, Effective: c, Permitted: c},
		},
	}
}

// output is a buffer that a process writes to.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
	// seen is called with each write.
	seen chan struct{}
}

func newOutput() *output { return &output{seen: make(chan struct{}, 1)} }

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	select {
	case o.seen <- struct{}{}:
	default:
	}
	return o.b.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.ReplaceAll(o.b.String(), "\r", "")
}

// waitFor waits until the output holds a text.
func (o *output) waitFor(t *testing.T, text string) {
	t.Helper()
	limit := time.After(time.Minute)
	for !strings.Contains(o.String(), text) {
		select {
		case <-o.seen:
		case <-limit:
			t.Fatalf("%q is not in %q", text, o.String())
		}
	}
}

type pod struct {
	*sandbox.Containers
	t  *testing.T
	sb *sandbox.Sandbox
}

func (p *pod) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	p.t.Cleanup(cancel)
	return ctx
}

// add makes a container that is deleted at the test's end.
func (p *pod) add(t *testing.T, cfg sandbox.ContainerConfig) *sandbox.Container {
	t.Helper()
	c, err := p.Add(p.ctx(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Delete(p.ctx()); err != nil {
			t.Errorf("delete %s: %v", cfg.ID, err)
		}
	})
	return c
}

// run runs a container of a shell line to its end.
func (p *pod) run(t *testing.T, cfg sandbox.ContainerConfig) (string, sandbox.ContainerExit) {
	t.Helper()
	c := p.add(t, cfg)
	out := newOutput()
	if err := c.Start(p.ctx(), sandbox.ContainerStdio{Stdout: out, Stderr: out}); err != nil {
		t.Fatal(err)
	}
	exit, err := c.Wait(p.ctx(), "")
	if err != nil {
		t.Fatal(err)
	}
	return out.String(), exit
}

// exec runs a shell line beside the first process.
func (p *pod) exec(t *testing.T, c *sandbox.Container, id, line string, change func(*sandbox.ContainerProcess)) (string, sandbox.ContainerExit) {
	t.Helper()
	caps := usualCapabilities
	pr := sandbox.ContainerProcess{
		Args: []string{"sh", "-c", line}, Env: []string{"PATH=/bin"},
		Capabilities: sandbox.Capabilities{Bounding: caps, Effective: caps, Permitted: caps},
	}
	if change != nil {
		change(&pr)
	}
	out := newOutput()
	if err := c.Exec(p.ctx(), id, pr, sandbox.ContainerStdio{Stdout: out, Stderr: out}); err != nil {
		t.Fatal(err)
	}
	exit, err := c.Wait(p.ctx(), id)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Forget(id); err != nil {
		t.Fatal(err)
	}
	return out.String(), exit
}

func (p *pod) want(t *testing.T, c *sandbox.Container, line, want string) {
	t.Helper()
	if got, exit := p.exec(t, c, "x", line, nil); strings.TrimSpace(got) != want {
		t.Errorf("%s: got %q, want %q, %+v", line, got, want, exit)
	}
}

// TestVMContainersOfAPod boots one machine and runs containers in it.
func TestVMContainersOfAPod(t *testing.T) {
	sb := start(t, func(c *sandbox.Config) { c.Containers, c.Memory = true, 512<<20 })
	p := &pod{sb.Containers(), t, sb}

	t.Run("a process with all that is its own", func(t *testing.T) {
		cfg := containerConfig(t, "first", "sh", "-c", `echo $GREETING $HOME $$; pwd; id; hostname; umask; cat /file; echo ours > /new; ls /; grep CapBnd /proc/self/status`)
		write(t, filepath.Join(cfg.Root, "file"), "of the image", 0o600)
		umask := uint32(0o27)
		cfg.Process.UID, cfg.Process.GID, cfg.Process.AdditionalGIDs, cfg.Process.Umask, cfg.Process.Cwd = 1000, 1001, []uint32{7}, &umask, "/made/here"
		got, exit := p.run(t, cfg)
		want := "hello /home/user 1\n/made/here\nuid=1000(user) gid=1001 groups=7\npod\n0027\n" +
			"cat: can't open '/file': Permission denied\nsh: can't create /new: Permission denied\n" +
			"bin\ndev\netc\nfile\nhome\nmade\nproc\nroot\nsys\ntmp\nCapBnd:\t00000000a80425fb\n"
		if got != want || exit.Code != 0 || exit.At.IsZero() {
			t.Errorf("got %q, want %q, %+v", got, want, exit)
		}
	})
	t.Run("exit codes and signals", func(t *testing.T) {
		if _, exit := p.run(t, containerConfig(t, "code", "sh", "-c", "exit 7")); exit.Code != 7 || exit.Signal != 0 {
			t.Errorf("%+v", exit)
		}
		c := p.add(t, containerConfig(t, "killed", "sleep", "1000"))
		if err := c.Start(p.ctx(), sandbox.ContainerStdio{}); err != nil {
			t.Fatal(err)
		}
		if err := c.Signal(p.ctx(), "", agentclient.SIGKILL, false); err != nil {
			t.Fatal(err)
		}
		if exit, err := c.Wait(p.ctx(), ""); err != nil || exit.Code != 137 || exit.Signal != agentclient.SIGKILL {
			t.Errorf("%+v, %v", exit, err)
		}
		if err := c.Signal(p.ctx(), "", agentclient.SIGKILL, false); !errors.Is(err, sandbox.ErrNoProcess) {
			t.Errorf("a process that has ended: %v", err)
		}
		if err := c.Exec(p.ctx(), "x", sandbox.ContainerProcess{Args: []string{"true"}}, sandbox.ContainerStdio{}); err == nil {
			t.Error("a container that has ended takes another process")
		}
	})
	t.Run("killed before its start", func(t *testing.T) {
		c := p.add(t, containerConfig(t, "early", "sh", "-c", "echo ran"))
		if err := c.Signal(p.ctx(), "", agentclient.SIGKILL, false); err != nil {
			t.Fatal(err)
		}
		if exit, err := c.Wait(p.ctx(), ""); err != nil || exit.Code != 137 {
			t.Errorf("%+v, %v", exit, err)
		}
	})
	t.Run("deleted by calls of which the first is given up", func(t *testing.T) {
		for range 3 {
			c := p.add(t, containerConfig(t, "again", "sleep", "1000"))
			if err := c.Start(p.ctx(), sandbox.ContainerStdio{}); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(p.ctx(), time.Millisecond)
			_ = c.Delete(ctx) // it may have been done in time
			cancel()
			if err := c.Delete(p.ctx()); err != nil {
				t.Fatal(err)
			}
		}
	})
	t.Run("what can't be started", func(t *testing.T) {
		for id, tt := range map[string]struct {
			args, cwd string
			code      int
		}{"missing": {"nothing", "/", 127}, "no-program": {"/etc/passwd", "/", 126}} {
			cfg := containerConfig(t, id, tt.args)
			err := p.add(t, cfg).Start(p.ctx(), sandbox.ContainerStdio{})
			if se := (*sandbox.ContainerStartError)(nil); !errors.As(err, &se) || se.Code != tt.code {
				t.Errorf("%s: %v", id, err)
			}
		}
	})
	t.Run("two that share the network and nothing else", func(t *testing.T) { p.shareNetwork(t) })
	t.Run("terminal", func(t *testing.T) { p.terminal(t) })
	t.Run("mounts", func(t *testing.T) { p.mounts(t) })
	t.Run("a tmpfs of several", func(t *testing.T) { p.sharedTmpfs(t) })
	t.Run("I11_MemoryIsBounded", func(t *testing.T) { p.memory(t) })
	t.Run("I14_HostileRootsLeadNowhere", func(t *testing.T) { p.hostileRoots(t) })
	t.Run("I12_WhatIsNotHonouredIsNamed", func(t *testing.T) { p.refused(t) })
	t.Run("nothing is left", func(t *testing.T) {
		// The sandbox's own root is another: the agent's places are looked at by what they take.
		out, _, err := sh(t, sb, "ls /sys/fs/cgroup/msb | grep -c container; ps | grep -c '[m]sb-container'; ps | grep -c '[s]leep'")
		if err != nil || strings.TrimSpace(out) != "0\n0\n0" {
			t.Errorf("%q, %v", out, err)
		}
	})
}

// background starts a container that runs until it is deleted.
func (p *pod) background(t *testing.T, cfg sandbox.ContainerConfig, ready string) (*sandbox.Container, *output) {
	t.Helper()
	c, out := p.add(t, cfg), newOutput()
	if err := c.Start(p.ctx(), sandbox.ContainerStdio{Stdout: out, Stderr: out}); err != nil {
		t.Fatal(err)
	}
	out.waitFor(t, ready)
	return c, out
}

func (p *pod) shareNetwork(t *testing.T) {
	server := containerConfig(t, "server", "sh", "-c", "trap 'echo got TERM; exit 3' TERM; (echo from the server | nc -l -p 8080) & echo secret > /tmp/secret; echo ready; while true; do sleep 1; done")
	server.ReadOnlyRoot = true
	server.Mounts = append(server.Mounts, sandbox.ContainerMount{Type: "tmpfs", Target: "/tmp"})
	a, out := p.background(t, server, "ready")
	b, _ := p.background(t, containerConfig(t, "client", "sh", "-c", "echo ready; exec sleep 1000"), "ready")
	if a.PID("") == 0 || a.PID("") == b.PID("") {
		t.Errorf("processes %d and %d", a.PID(""), b.PID(""))
	}
	listens := func() bool {
		all, err := p.ListeningSockets(p.ctx())
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(all, func(s sandbox.ListeningSocket) bool {
			return s.Network == "tcp" && s.Address.Port() == 8080 && s.Address.Addr().IsUnspecified()
		})
	}
	for end := time.Now().Add(time.Minute); !listens(); {
		if time.Now().After(end) {
			t.Fatal("the server's socket is not reported")
		}
	}
	p.want(t, b, "nc 127.0.0.1 8080 < /dev/null", "from the server")
	p.want(t, b, "ls /tmp; ps | grep -c '[s]erver'", "0")
	p.want(t, b, "hostname other && hostname", "hostname: sethostname: Operation not permitted")
	p.want(t, a, "cat /tmp/secret; echo x > /etc/x", "secret\nsh: can't create /etc/x: Read-only file system")
	// Masked and read-only paths.
	p.want(t, a, "cat /proc/kcore /proc/keys | wc -c; ls /sys/firmware | wc -l; echo 1 > /proc/sys/vm/drop_caches", "0\n0\nsh: can't create /proc/sys/vm/drop_caches: Read-only file system")
	// Neither the machine's disks nor its ports can be reached by a device that is made, anywhere.
	p.want(t, b, "for d in /tmp /dev /dev/shm; do mknod $d/disk b 254 0; head -c1 $d/disk; mknod $d/n c 1 3; cat $d/n; done 2>&1 | grep -c 'Permission denied'", "6")
	// A process has no descriptors but its own, and sees no process of another container or of the agent.
	p.want(t, b, "ls /proc/self/fd | wc -l; cat /proc/[0-9]*/comm 2>/dev/null | grep -vxE 'sh|cat|sleep|grep|wc|exe|busybox' | wc -l; cat /proc/1/cmdline | wc -c", "4\n0\n11")
	p.want(t, b, "mount -t tmpfs x /tmp 2>&1 | grep -c denied; ls /run /proc/1/root/run 2>&1 | grep -c 'No such'", "1\n2")
	p.want(t, b, "dd if=/dev/zero bs=4 count=1 2>/dev/null | wc -c; echo x > /dev/null; head -c4 /dev/urandom | wc -c; chmod 000 /dev/null", "4\n4")
	p.want(t, a, "stat -c %a /dev/null", "666")

	stats, err := a.Stats(p.ctx())
	pids, errPids := a.Pids(p.ctx())
	if err != nil || errPids != nil || stats.MemoryCurrent == 0 || stats.PIDsCurrent == 0 || stats.CPU["usage_usec"] == 0 || !slices.Contains(pids, a.PID("")) {
		t.Errorf("%+v, %v, %v, %v", stats, pids, err, errPids)
	}
	if err := a.Update(p.ctx(), sandbox.ContainerResources{PIDs: 50, CPUWeight: 200, CPUQuota: 200 * time.Millisecond}); err != nil {
		t.Error(err)
	}
	if stats, err = a.Stats(p.ctx()); err != nil || stats.PIDsLimit != 50 {
		t.Errorf("%+v, %v", stats, err)
	}
	if err := a.Pause(p.ctx()); err != nil {
		t.Error(err)
	}
	if err := a.Signal(p.ctx(), "", agentclient.SIGTERM, false); err != nil {
		t.Error(err)
	}
	p.want(t, b, "echo others run", "others run")
	if strings.Contains(out.String(), "got TERM") {
		t.Error("a container that is paused runs")
	}
	if err := a.Resume(p.ctx()); err != nil {
		t.Error(err)
	}
	out.waitFor(t, "got TERM")
	if exit, err := a.Wait(p.ctx(), ""); err != nil || exit.Code != 3 {
		t.Errorf("%+v, %v", exit, err)
	}
	if pids, err := a.Pids(p.ctx()); err != nil || len(pids) > 0 {
		t.Errorf("its first process has ended, and %v are left: %v", pids, err)
	}
}

func (p *pod) terminal(t *testing.T) {
	cfg := containerConfig(t, "term", "sh")
	cfg.Process.Terminal, cfg.Process.ConsoleSize, cfg.Process.UID = true, agentclient.Size{Rows: 30, Cols: 100}, 1000
	c, out := p.add(t, cfg), newOutput()
	in, input := io.Pipe()
	if err := c.Start(p.ctx(), sandbox.ContainerStdio{Stdin: in, Stdout: out}); err != nil {
		t.Fatal(err)
	}
	say := func(line string) {
		if _, err := io.WriteString(input, line+"\n"); err != nil {
			t.Fatal(err)
		}
	}
	say("tty; stty size; stat -c %u:%g $(tty); echo first-$((1+1))")
	out.waitFor(t, "first-2")
	for _, want := range []string{"/dev/pts/0\n", "30 100\n", "1000:5\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in %q", want, out.String())
		}
	}
	if err := c.Resize(p.ctx(), "", agentclient.Size{Rows: 11, Cols: 22}); err != nil {
		t.Fatal(err)
	}
	say("while [ \"$(stty size)\" != '11 22' ]; do :; done; echo second-$((1+2))")
	out.waitFor(t, "second-3")
	// Another process has a terminal of its own.
	got, _ := p.exec(t, c, "tty", "tty; stty size", func(pr *sandbox.ContainerProcess) {
		pr.Terminal, pr.ConsoleSize = true, agentclient.Size{Rows: 5, Cols: 6}
	})
	if got != "/dev/pts/1\n5 6\n" {
		t.Errorf("%q", got)
	}
	if err := c.CloseStdin(p.ctx(), ""); err != nil {
		t.Fatal(err)
	}
	if exit, err := c.Wait(p.ctx(), ""); err != nil || exit.Code != 0 {
		t.Errorf("%+v, %v: %q", exit, err, out.String())
	}
	_ = input.Close()
}

func (p *pod) mounts(t *testing.T) {
	host := t.TempDir()
	write(t, filepath.Join(host, "hosts"), "127.0.0.1 localhost\n", 0o644)
	write(t, filepath.Join(host, "beside"), "not to be seen", 0o644)
	write(t, filepath.Join(host, "log"), "", 0o666)
	if err := os.Mkdir(filepath.Join(host, "data"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(filepath.Join(host, "data"), 1000, 1000); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(host, "data", "f"), "data", 0o600)
	cfg := containerConfig(t, "mounts", "sh", "-c", "echo ready; exec sleep 1000")
	cfg.Mounts = append(cfg.Mounts,
		sandbox.ContainerMount{Type: "bind", Source: filepath.Join(host, "hosts"), Target: "/etc/hosts", ReadOnly: true},
		sandbox.ContainerMount{Type: "bind", Source: filepath.Join(host, "log"), Target: "/dev/termination-log"},
		sandbox.ContainerMount{Type: "bind", Source: filepath.Join(host, "data"), Target: "/var/data"},
		sandbox.ContainerMount{Type: "bind", Source: filepath.Join(host, "data"), Target: "/var/same", ReadOnly: true},
	)
	cfg.Sysctls = map[string]string{"kernel.shmmax": "123456", "net.ipv4.ip_local_port_range": "2000 3000"}
	c, _ := p.background(t, cfg, "ready")
	// In etc/ssl is the sandbox's authority, of which an image without any bundle gets one.
	p.want(t, c, "cat /etc/hosts; echo x > /etc/hosts; ls /etc; grep -c BEGIN /etc/ssl/certs/ca-certificates.crt; echo the end > /dev/termination-log", "127.0.0.1 localhost\nsh: can't create /etc/hosts: Read-only file system\nhosts\npasswd\nssl\n1")
	if b, err := os.ReadFile(filepath.Join(host, "log")); err != nil || string(b) != "the end\n" {
		t.Errorf("%q, %v", b, err)
	}
	p.want(t, c, "cat /proc/sys/kernel/shmmax; tr '\\t' ' ' < /proc/sys/net/ipv4/ip_local_port_range", "123456\n2000 3000")
	p.want(t, c, "cat /var/data/f; stat -c %u:%g /var/data; echo x > /var/same/g", "data1000:1000\nsh: can't create /var/same/g: Read-only file system")
	if got, _ := p.exec(t, c, "u", "echo mine > /var/data/g && stat -c %u:%g /var/data/g; cat /var/same/f", func(pr *sandbox.ContainerProcess) { pr.UID, pr.GID = 1000, 1000 }); got != "1000:1000\ncat: can't open '/var/same/f': Permission denied\n" {
		t.Errorf("%q", got)
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(host, "data", "g"), &st); err != nil || st.Uid != 1000 || st.Gid != 1000 {
		t.Errorf("the host has %d:%d, %v", st.Uid, st.Gid, err)
	}
	// What two containers see is one file system: a FIFO connects them, whatever the umask of the supervisor is.
	other := containerConfig(t, "beside", "sh", "-c", "umask 0; mkfifo -m 666 /shared/fifo; echo ready; cat /shared/fifo; exec sleep 1000")
	other.Mounts = append(other.Mounts, sandbox.ContainerMount{Type: "bind", Source: filepath.Join(host, "data"), Target: "/shared"})
	_, out := p.background(t, other, "ready")
	p.want(t, c, "stat -c %a /var/data/fifo; echo across > /var/data/fifo; rm /var/data/fifo", "666")
	out.waitFor(t, "across")
	p.want(t, c, "mknod /var/data/disk b 254 0; ls /var/data", "mknod: /var/data/disk: Operation not permitted\nf\ng")
}

func (p *pod) memory(t *testing.T) {
	events := make(chan sandbox.ContainerEvent, 10)
	ctx, cancel := context.WithCancel(p.ctx())
	watched := make(chan error, 1)
	go func() { watched <- p.Watch(ctx, func(e sandbox.ContainerEvent) { events <- e }) }()
	defer func() { cancel(); <-watched }()
	next := func() sandbox.ContainerEvent {
		select {
		case e := <-events:
			return e
		case err := <-watched:
			t.Fatalf("the watch ended: %v", err)
		case <-p.ctx().Done():
			t.Fatal("no event")
		}
		return sandbox.ContainerEvent{}
	}
	if e := next(); e.ID != "" {
		t.Errorf("%+v", e)
	}
	cfg := containerConfig(t, "oom", "sh", "-c", "exec dd if=/dev/zero of=/dev/null bs=60M count=1")
	cfg.Resources.MemoryBytes = 16 << 20
	_, exit := p.run(t, cfg)
	if !exit.OOMKilled || exit.Code != 137 {
		t.Errorf("%+v", exit)
	}
	if e := next(); e.ID != "oom" || e.OOMKills == 0 {
		t.Errorf("%+v", e)
	}
	bomb := containerConfig(t, "forks", "sh", "-c", "i=0; while [ $i -lt 30 ]; do sleep 1000 & i=$((i+1)); done; echo $i")
	bomb.Resources.PIDs = 10
	if got, exit := p.run(t, bomb); exit.Code == 0 || strings.Contains(got, "30") {
		t.Errorf("%q, %+v", got, exit)
	}
}

// hostileRoots are images whose links lead out of them.
func (p *pod) hostileRoots(t *testing.T) {
	for id, link := range map[string][2]string{"proc": {"proc", "/etc"}, "dev": {"dev", "../../../../tmp"}, "sys": {"sys", "/"}} {
		cfg := containerConfig(t, "link-"+id, "true")
		if err := os.Symlink(link[1], filepath.Join(cfg.Root, link[0])); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Add(p.ctx(), cfg); err == nil || !strings.Contains(err.Error(), "link") {
			t.Errorf("%s: %v", id, err)
		}
	}
	// Links for the mounts of files and directories lead inside, however many dots they have.
	host := t.TempDir()
	write(t, filepath.Join(host, "hosts"), "the host's", 0o644)
	cfg := containerConfig(t, "links", "sh", "-c", "ls -l /etc/hosts | sed 's/.* //'; cat /etc/hosts /run/msb/inside; ls /out /run/msb; ls /run/msb/containers 2>&1")
	for name, to := range map[string]string{"etc/hosts": "../../../../../run/msb/inside", "out": "/run/msb/containers"} {
		if err := os.Symlink(to, filepath.Join(cfg.Root, name)); err != nil {
			t.Fatal(err)
		}
	}
	cfg.Mounts = append(cfg.Mounts,
		sandbox.ContainerMount{Type: "bind", Source: filepath.Join(host, "hosts"), Target: "/etc/hosts"},
		sandbox.ContainerMount{Type: "tmpfs", Target: "/out/of/it"})
	got, _ := p.run(t, cfg)
	if want := "../../../../../run/msb/inside\nthe host'sthe host's/out:\nof\n\n/run/msb:\ncontainers\ninside\nof\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	loop := containerConfig(t, "loop", "true")
	if err := os.Symlink("loop", filepath.Join(loop.Root, "loop")); err != nil {
		t.Fatal(err)
	}
	loop.Mounts = append(loop.Mounts, sandbox.ContainerMount{Type: "tmpfs", Target: "/loop/x"})
	if _, err := p.Add(p.ctx(), loop); err == nil {
		t.Error("a loop of links is a mount point")
	}
}

// refused are configurations that can't be honoured.
func (p *pod) refused(t *testing.T) {
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink("/etc", link); err != nil {
		t.Fatal(err)
	}
	for names, change := range map[string]func(*sandbox.ContainerConfig){
		"container":        func(c *sandbox.ContainerConfig) { c.ID = "../../x" },
		"container \"..\"": func(c *sandbox.ContainerConfig) { c.ID = ".." },
		"root":             func(c *sandbox.ContainerConfig) { c.Root = link },
		"state":            func(c *sandbox.ContainerConfig) { c.Root = filepath.Join(scratch, "home") },
		"process":          func(c *sandbox.ContainerConfig) { c.Process.Args = nil },
		"rlimits":          func(c *sandbox.ContainerConfig) { c.Process.Rlimits = []agentclient.Rlimit{{Name: "RLIMIT_X"}} },
		"capabilities":     func(c *sandbox.ContainerConfig) { c.Process.Capabilities.Bounding = []string{"CAP_ALL"} },
		"cwd":              func(c *sandbox.ContainerConfig) { c.Process.Cwd = "relative" },
		"mounts[0]":        func(c *sandbox.ContainerConfig) { c.Mounts[0].Type = "overlay" },
		"mounts[1]":        func(c *sandbox.ContainerConfig) { c.Mounts[1].Target = "dev" },
		"mounts[2]":        func(c *sandbox.ContainerConfig) { c.Mounts[2].Target = "/else/pts" },
		"mounts[7]: ": func(c *sandbox.ContainerConfig) {
			c.Mounts = append(c.Mounts, sandbox.ContainerMount{Type: "bind", Source: link, Target: "/x"})
		},
		"mounts[0]: containers share": func(c *sandbox.ContainerConfig) { c.Mounts[0].Shared = "v" },
		"mounts[6]: the sub path":     func(c *sandbox.ContainerConfig) { c.Mounts[6].Shared, c.Mounts[6].SubPath = "v", "../x" },
		"mounts[6]: owner":            func(c *sandbox.ContainerConfig) { c.Mounts[6].UID = 1 },
		"shared tmpfs \"../x\"":       func(c *sandbox.ContainerConfig) { c.Mounts[6].Shared = "../x" },
		"mounts: ":                    func(c *sandbox.ContainerConfig) { c.Mounts = make([]sandbox.ContainerMount, 100) },
		"sysctl \"kernel.hostname\"":  func(c *sandbox.ContainerConfig) { c.Sysctls = map[string]string{"kernel.hostname": "x"} },
		"sysctl \"net/../kernel/x\"":  func(c *sandbox.ContainerConfig) { c.Sysctls = map[string]string{"net/../kernel/x": "x"} },
		"cgroup.procs":                func(c *sandbox.ContainerConfig) { c.Resources.Unified = map[string]string{"cgroup.procs": "1"} },
		"memory.none":                 func(c *sandbox.ContainerConfig) { c.Resources.Unified = map[string]string{"memory.none": "1"} },
		"maskedPaths":                 func(c *sandbox.ContainerConfig) { c.MaskedPaths = []string{"relative"} },
	} {
		cfg := containerConfig(t, "refused", "true")
		change(&cfg)
		if _, err := p.Add(p.ctx(), cfg); err == nil || !strings.Contains(err.Error(), names) {
			t.Errorf("%s: %v", names, err)
		}
	}
}
