package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// host is the name that every contestant serves; h2load and wrk resolve it
// without help and send it as SNI.
const host = "localhost"

// value is what the upstream insists on, placeholder what the load sends.
const (
	value       = "bench-real-value-0123456789-abcdef"
	placeholder = "X-Bench-Placeholder"
)

func main() {
	role := flag.String("role", "", "internal: upstream, bare or msb")
	upstream := flag.String("upstream", "", "internal: the upstream's address")
	certs := flag.String("certs", "", "internal: directory of the upstream's certificate and key")
	profile := flag.String("cpuprofile", "", "write msb's CPU profile there")
	seconds := flag.Int("seconds", 3, "length of each measurement")
	quick := flag.Bool("quick", false, "msb and the bare proxy only, without single connections")
	rounds := flag.Int("rounds", 1, "how often each row is measured: the table has medians and ranges")
	rows := flag.String("rows", "", "only rows whose name matches this `regexp`")
	before := flag.String("before", "", "measure msb of another build of this program too, for example of an older commit")
	out := flag.String("out", "", "write every value to this file, for benchstat")
	show := flag.String("serve", "", "measure nothing: serve msb's guest-facing side, with what verifies it in this `directory`, until interrupted")
	flag.Parse()
	var err error
	switch {
	case *role != "":
		err = serve(*role, *upstream, *certs, *profile)
	case *show != "":
		err = expose(*show, *profile)
	default:
		err = run(options{time.Duration(*seconds) * time.Second, *rounds, *rows, *quick, *before, *profile, *out})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench-proxy:", err)
		os.Exit(1)
	}
}

// options are the flags of a measurement.
type options struct {
	length  time.Duration // of each load
	rounds  int
	rows    string
	quick   bool
	before  string
	profile string
	out     string
}

func run(o options) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for _, tool := range []string{"h2load", "wrk"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("%s is not installed: apt-get install nghttp2-client wrk", tool)
		}
	}
	dir, err := os.MkdirTemp("", "bench-proxy-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := writeCertificate(dir); err != nil {
		return err
	}
	contestants, err := start(ctx, dir, o)
	defer func() {
		for _, c := range contestants {
			c.stop()
		}
	}()
	if err != nil {
		return err
	}
	return report(ctx, os.Stdout, contestants, o)
}

// expose serves what a guest would see for tools that look at it from outside, such as testssl.sh. The
// first line that it prints is the address and the placeholder.
func expose(dir, profile string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := writeCertificate(dir); err != nil {
		return err
	}
	direct, err := self(context.WithoutCancel(ctx), "direct", "upstream", "", dir, "")
	if err != nil {
		return err
	}
	defer direct.stop()
	msb, err := self(context.WithoutCancel(ctx), "msb", "msb", direct.addr, dir, profile)
	if err != nil {
		return err
	}
	defer msb.stop()
	fmt.Fprintln(os.Stdout, msb.addr, msb.token)
	<-ctx.Done()
	return nil
}

// contestant is a running server and what a request to it carries.
type contestant struct {
	name  string
	addr  string // host:port
	token string
	cmd   *exec.Cmd
	http2 bool
}

func (c *contestant) stop() {
	if c.cmd == nil || c.cmd.Process == nil {
		return
	}
	_ = c.cmd.Process.Signal(os.Interrupt)
	_ = c.cmd.Wait()
}

func start(ctx context.Context, dir string, o options) ([]*contestant, error) {
	direct, err := self(ctx, "direct", "upstream", "", dir, "")
	if err != nil {
		return nil, err
	}
	all := []*contestant{direct}
	direct.token = value
	for _, role := range []string{"bare", "msb"} {
		c, err := self(ctx, role, role, direct.addr, dir, o.profile)
		if err != nil {
			return all, err
		}
		all = append(all, c)
	}
	if o.before != "" {
		c, err := launch(ctx, o.before, "before", "msb", direct.addr, dir)
		if err != nil {
			return all, err
		}
		all = append(all, c)
	}
	if o.quick {
		return all, nil
	}
	for _, peer := range []func(context.Context, string, string) (*contestant, error){startMitmproxy, startSquid} {
		c, err := peer(ctx, dir, direct.addr)
		if errors.Is(err, exec.ErrNotFound) {
			fmt.Fprintln(os.Stderr, "left out:", err)
			continue
		}
		if err != nil {
			return all, err
		}
		all = append(all, c)
	}
	return all, nil
}

// self starts this program in another role.
func self(ctx context.Context, name, role, upstream, dir, profile string) (*contestant, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var args []string
	if role == "msb" && profile != "" {
		abs, err := filepath.Abs(profile)
		if err != nil {
			return nil, err
		}
		args = []string{"-cpuprofile", abs}
	}
	return launch(ctx, exe, name, role, upstream, dir, args...)
}

// launch starts a build of this program in a role; its first line is "addr token".
func launch(ctx context.Context, exe, name, role, upstream, dir string, args ...string) (*contestant, error) {
	cmd := exec.CommandContext(ctx, exe, append(args, "-role", role, "-upstream", upstream, "-certs", dir)...)
	cmd.Env = append(os.Environ(), "BENCH_TOKEN="+value)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	fields := strings.Fields(line)
	if len(fields) != 2 {
		return nil, fmt.Errorf("%s did not start: %q", role, line)
	}
	return &contestant{name: name, addr: fields[0], token: fields[1], cmd: cmd, http2: true}, nil
}
