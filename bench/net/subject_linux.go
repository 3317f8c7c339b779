package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/msb-project/msb/netstack"
	"github.com/msb-project/msb/netstack/netstacktest"
)

// relayOffset separates the copy relay's ports from the server's.
const relayOffset = 10000

func netAddr(port uint16) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))) }

// subject is one thing between a client and the server.
type subject struct {
	name    string
	measure func(options) (row, error)
}

func subjects(o options) []subject {
	all := []subject{
		{"loopback", func(o options) (row, error) { return drive(o, nil, nil, nil) }},
		{"copy relay", measureRelay},
		// What the guests of both backends have.
		{ours, func(o options) (row, error) { o.mtu = netstack.LargeMTU; return measureMsb(o) }},
		// What libkrun's could have instead: CSUM, TSO4 and TSO6 both ways.
		{"msb mtu 1500, offloads", func(o options) (row, error) {
			o.mtu, o.large, o.trust = netstack.DefaultMTU, true, true
			return measureMsb(o)
		}},
	}
	all = append(all, subject{"msb on the TAP", func(o options) (row, error) {
		o.mtu, o.tap = netstack.LargeMTU, true
		return measureMsb(o)
	}})
	if o.gvproxy != "" {
		all = append(all, subject{"gvproxy", measureGvproxy})
	}
	return append(all, subject{"slirp4netns", measureSlirp})
}

// process is a child that ends with its stdin.
type process struct {
	*exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func start(cmd *exec.Cmd) (*process, error) {
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = os.Stderr
	return &process{cmd, in, bufio.NewReader(out)}, cmd.Start()
}

func (p *process) stop() {
	_ = p.in.Close()
	done := make(chan struct{})
	go func() { _ = p.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(2 * time.Second):
		_ = p.Process.Kill()
		<-done
	}
}

// cpu is the CPU time that a running process has used.
func (p *process) cpu() time.Duration {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Process.Pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	f := strings.Fields(rest)
	const utime, stime, tick = 11, 12, 10 * time.Millisecond
	u, _ := strconv.Atoi(f[utime])
	s, _ := strconv.Atoi(f[stime])
	return time.Duration(u+s) * tick
}

// self is this program in another role.
func self(o options, role string) *exec.Cmd {
	exe, _ := os.Executable()
	return exec.Command(exe, "-role", role, "-base", strconv.Itoa(o.base), "-target", o.target,
		"-seconds", fmt.Sprint(o.seconds), "-most", strconv.Itoa(o.most), "-mtu", strconv.Itoa(o.mtu), "-large="+strconv.FormatBool(o.large),
		"-trust="+strconv.FormatBool(o.trust), "-tap="+strconv.FormatBool(o.tap), "-profile", o.profile)
}

func startServer() (*process, int, error) {
	p, err := start(self(options{}, "server"))
	if err != nil {
		return nil, 0, err
	}
	line, err := p.out.ReadString('\n')
	if err != nil {
		return nil, 0, fmt.Errorf("the server said nothing: %w", err)
	}
	base, err := strconv.Atoi(strings.TrimSpace(line))
	return p, base, err
}

// drive runs the client part by part, reading the subject's CPU time and memory
// between.
func drive(o options, guest *netstacktest.TapGuest, subject *process, mem func(ask byte) memory) (row, error) {
	cmd := self(o, "client")
	if guest != nil {
		inside := guest.Command(cmd.Path, cmd.Args[1:]...)
		cmd = inside
	}
	c, err := start(cmd)
	if err != nil {
		return row{}, err
	}
	defer c.stop()
	var r row
	used := func() time.Duration {
		if subject == nil {
			return 0
		}
		return subject.cpu()
	}
	parts := []string{"up1", "up8", "down1", "down8", "rest"}
	if o.grow {
		parts = []string{"grow"}
	} else if mem != nil {
		parts = append(parts, "idle")
	}
	for _, part := range parts {
		before, mallocs, inUse := used(), uint64(0), uint64(0)
		if mem != nil {
			mallocs = mem(askMallocs).Mallocs
		}
		if part == "idle" {
			inUse = mem(askInUse).InUse
		}
		if _, err := fmt.Fprintln(c.in, part); err != nil {
			return row{}, err
		}
		line, err := c.out.ReadBytes('\n')
		if err != nil {
			return row{}, fmt.Errorf("client ended in %s: %w", part, err)
		}
		if err := json.Unmarshal(line, &r.result); err != nil {
			return row{}, err
		}
		spent := (used() - before).Seconds()
		switch part {
		case "up1":
			r.cpuUp = spent / (r.Up1 * o.seconds / 1e9)
			if mem != nil {
				r.allocsUp = float64(mem(askMallocs).Mallocs-mallocs) / (r.Up1 * o.seconds / 1e6)
			}
		case "idle":
			r.idle = float64(mem(askInUse).InUse-inUse) / idleFlows
		case "down1":
			r.cpuDown = spent / (r.Down1 * o.seconds / 1e9)
			if mem != nil {
				r.allocsDown = float64(mem(askMallocs).Mallocs-mallocs) / (r.Down1 * o.seconds / 1e6)
			}
		}
	}
	return r, nil
}

func measureRelay(o options) (row, error) {
	p, err := start(self(o, "relay"))
	if err != nil {
		return row{}, err
	}
	defer p.stop()
	o.base += relayOffset
	if err := await(func() error {
		c, err := net.Dial("tcp", netAddr(uint16(o.base+portEcho)))
		if err == nil {
			_ = c.Close()
		}
		return err
	}); err != nil {
		return row{}, err
	}
	return drive(o, nil, p, nil)
}

// await tries until it works, for ten seconds.
func await(try func() error) (err error) {
	for range 200 {
		if err = try(); err == nil {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return err
}

func measureMsb(o options) (row, error) {
	full, err := netstack.New(o.stackConfig(&loopback{}))
	if err != nil {
		return row{}, err
	}
	cfg := full.Config()
	_ = full.Close()
	g, err := netstacktest.OpenTapGuest(cfg)
	if err != nil {
		return row{}, err
	}
	defer g.Close()
	host, guest, err := linkTo(o, g)
	if err != nil {
		return row{}, err
	}
	if o.profile != "" {
		o.profile += "." + strconv.Itoa(o.mtu)
	}
	cmd := self(o, "gateway")
	cmd.ExtraFiles = []*os.File{host}
	gw, err := start(cmd)
	if err != nil {
		return row{}, err
	}
	defer gw.stop()
	if guest != nil {
		_ = host.Close()
		b, err := startBridge(o, g, guest)
		if err != nil {
			return row{}, err
		}
		defer func() { _ = b.Process.Kill(); b.stop() }()
	}
	o.target = "10.99.0.1"
	return drive(o, g, gw, func(ask byte) (m memory) {
		_, _ = gw.in.Write([]byte{ask})
		line, _ := gw.out.ReadBytes('\n')
		_ = json.Unmarshal(line, &m)
		return m
	})
}

// linkTo returns what the gateway has on its descriptor 3, and the end that a
// bridge carries to the TAP; none where the gateway has the TAP itself.
func linkTo(o options, g *netstacktest.TapGuest) (host, guest *os.File, err error) {
	if !o.tap {
		return socketpair()
	}
	tap, ok := g.Tap().(*os.File)
	if !ok {
		return nil, nil, errors.New("the TAP is no file")
	}
	return tap, nil, nil
}

func startBridge(o options, g *netstacktest.TapGuest, link *os.File) (*process, error) {
	cmd := self(o, "bridge")
	tap, ok := g.Tap().(*os.File)
	if !ok {
		return nil, errors.New("the TAP is no file")
	}
	cmd.ExtraFiles = []*os.File{tap, link}
	p, err := start(cmd)
	_ = link.Close()
	return p, err
}

func socketpair() (a, b *os.File, err error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	return os.NewFile(uintptr(fds[0]), "host"), os.NewFile(uintptr(fds[1]), "guest"), nil
}

// measureGvproxy gives the namespace the addresses that gvproxy leases, and
// reaches the server by its address for the host.
func measureGvproxy(o options) (row, error) {
	dir, err := os.MkdirTemp("", "benchnet")
	if err != nil {
		return row{}, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	sock := filepath.Join(dir, "qemu.sock")
	p, err := start(exec.Command(o.gvproxy, "-listen-qemu", "unix://"+sock, "-mtu", "1500", "-ssh-port", "-1"))
	if err != nil {
		return row{}, err
	}
	defer func() { _ = p.Process.Kill(); p.stop() }()
	o.mtu = netstack.DefaultMTU
	full, err := netstack.New(o.stackConfig(&loopback{}))
	if err != nil {
		return row{}, err
	}
	cfg := full.Config()
	_ = full.Close()
	g, err := netstacktest.OpenTapGuest(cfg)
	if err != nil {
		return row{}, err
	}
	defer g.Close()
	var conn net.Conn
	if err := await(func() (err error) { conn, err = net.Dial("unix", sock); return err }); err != nil {
		return row{}, err
	}
	f, err := conn.(*net.UnixConn).File()
	_ = conn.Close()
	if err != nil {
		return row{}, err
	}
	b, err := startBridge(o, g, f)
	if err != nil {
		return row{}, err
	}
	defer func() { _ = b.Process.Kill(); b.stop() }()
	o.target = "192.168.127.254"
	return drive(o, g, p, nil)
}

// measureSlirp lets slirp4netns make its own TAP in a namespace.
func measureSlirp(o options) (row, error) {
	path, err := exec.LookPath("slirp4netns")
	if err != nil {
		return row{}, fmt.Errorf("install slirp4netns, or choose subjects with -only: %w", err)
	}
	g, err := netstacktest.OpenNamespace()
	if err != nil {
		return row{}, err
	}
	defer g.Close()
	p, err := start(exec.Command(path, "--configure", "--mtu=65520", "--netns-type=path", g.Path(), "tap0"))
	if err != nil {
		return row{}, err
	}
	defer func() { _ = p.Process.Kill(); p.stop() }()
	o.target = "10.0.2.2"
	if err := await(func() error {
		return g.Do(func() error {
			c, err := net.DialTimeout("tcp", o.addr(portEcho), time.Second)
			if err == nil {
				_ = c.Close()
			}
			return err
		})
	}); err != nil {
		return row{}, err
	}
	return drive(o, g, p, nil)
}
