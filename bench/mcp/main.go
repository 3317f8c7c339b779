//go:build linux

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/msb-project/msb/sandbox"
)

// options is the command line.
type options struct {
	msb, peer           string // the programs; peer is "" for none
	starts, execs, runs int
	out                 string
}

func main() {
	sandbox.MaybeRun()
	var o options
	flag.StringVar(&o.msb, "msb", "bin/msb", "the msb to measure")
	flag.StringVar(&o.peer, "microsandbox", "", "microsandbox's MCP server, a JavaScript file; empty for none")
	flag.IntVar(&o.starts, "starts", 20, "starts of each server")
	flag.IntVar(&o.execs, "execs", 50, "commands in a running sandbox, of each side; 0 for none")
	flag.IntVar(&o.runs, "runs", 7, "runs of each kind, of each side; 0 for none")
	flag.StringVar(&o.out, "out", "", "write every value to this file, for benchstat")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := start(ctx, &o); err != nil {
		fmt.Fprintln(os.Stderr, "bench-mcp:", err)
		os.Exit(1)
	}
}

func start(ctx context.Context, o *options) error {
	home, err := os.MkdirTemp("", "bench-mcp-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(home) }()
	b := &bench{options: o, home: home, env: append(os.Environ(), sandbox.EnvHome+"="+home), f: values{}}
	for _, step := range []func(context.Context) error{b.idle, b.execs, b.runs} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return errors.Join(b.f.write(os.Stdout), b.f.set().WriteFile(o.out))
}

// bench is what is measured, and with what.
type bench struct {
	*options
	home string
	env  []string
	f    values
}

func (b *bench) server(ctx context.Context) (*client, error) {
	return startServer(ctx, b.env, []string{b.msb, "mcp", "--vm", "qemu"})
}

// idle measures servers that do nothing yet. The first round of each, which reads its program from the disk, doesn't count.
func (b *bench) idle(ctx context.Context) error {
	for i := range b.starts + 1 {
		f := b.f
		if i == 0 {
			f = values{}
		}
		if err := b.oneStart(ctx, f, "", []string{b.msb, "mcp", "--vm", "qemu"}); err != nil {
			return err
		}
		if b.peer == "" {
			continue
		}
		if err := b.oneStart(ctx, f, peerPrefix, []string{"node", b.peer}); err != nil {
			return err
		}
	}
	return nil
}

// lists is how often one server is asked for its tools.
const lists = 10

func (b *bench) oneStart(ctx context.Context, f values, prefix string, argv []string) error {
	began := time.Now()
	c, err := startServer(ctx, b.env, argv)
	if err != nil {
		return err
	}
	err = c.open()
	f.took(prefix+seriesStart, time.Since(began))
	for i := 0; i < lists && err == nil; i++ {
		began = time.Now()
		var result []byte
		result, err = c.ask("tools/list", "{}")
		if i == 0 {
			f.took(prefix+seriesFirstList, time.Since(began))
			f.add(prefix+seriesBytes, float64(len(result)))
		} else {
			f.took(prefix+seriesList, time.Since(began))
		}
	}
	if err == nil {
		var pss, rss float64
		pss, rss, err = c.memory()
		f.add(prefix+seriesPSS, pss/(1<<20))
		f.add(prefix+seriesRSS, rss/(1<<20))
	}
	if closeErr := c.close(); err == nil {
		err = closeErr
	}
	return err
}

// sandboxName is of the one that commands are run in.
const sandboxName = "bench"

// execs compares a command by the tool with one by the SDK, in a session that is open.
func (b *bench) execs(ctx context.Context) (err error) {
	if b.options.execs == 0 {
		return nil
	}
	c, err := b.server(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = c.close() }() // its figures are taken
	if err := c.open(); err != nil {
		return err
	}
	if err := c.call("sandbox_create", map[string]any{"name": sandboxName}); err != nil {
		return err
	}
	defer func() { // first
		if e := c.call("sandbox_stop", map[string]any{"sandbox": sandboxName, "remove": true}); err == nil {
			err = e
		}
	}()
	home, err := sandbox.OpenHome(b.home)
	if err != nil {
		return err
	}
	sb, err := home.Connect(ctx, sandboxName)
	if err != nil {
		return err
	}
	defer func() { _ = sb.Close() }() // the session's
	for i := range b.options.execs + 1 {
		f := b.f
		if i == 0 { // reads the program from the disk
			f = values{}
		}
		began := time.Now()
		if err := c.call("sandbox_exec", map[string]any{"sandbox": sandboxName, "argv": []string{"/bin/true"}}); err != nil {
			return err
		}
		f.took(seriesToolExec, time.Since(began))
		began = time.Now()
		if st, err := sb.Exec(ctx, sandbox.ExecOptions{Argv: []string{"/bin/true"}}); err != nil || st.Code != 0 {
			return fmt.Errorf("/bin/true: exit code %d: %w", st.Code, err)
		}
		f.took(seriesExec, time.Since(began))
	}
	return nil
}

// runs compares a run by the tool with one by the command line.
func (b *bench) runs(ctx context.Context) error {
	if b.options.runs == 0 {
		return nil
	}
	c, err := b.server(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = c.close() }() // its figures are taken
	if err := c.open(); err != nil {
		return err
	}
	const usual = 512 // MiB
	for i := range b.options.runs + 1 {
		f := b.f
		if i == 0 { // fills the caches
			f = values{}
		}
		for _, kind := range []struct {
			tool, line   string
			first, other int // memory, MiB: each run of one's own kind is the first
		}{{seriesToolCold, seriesCold, usual + 2*(i+1), usual + 2*(i+1) + 1}, {seriesToolWarm, seriesWarm, usual, usual}} {
			fmt.Fprintf(os.Stderr, "runs %d of %d\n", i, b.options.runs)
			began := time.Now()
			if err := c.call("sandbox_run", map[string]any{"argv": []string{"/bin/true"}, "memory_mb": kind.first}); err != nil {
				return err
			}
			f.took(kind.tool, time.Since(began))
			began = time.Now()
			cmd := exec.CommandContext(ctx, b.msb, "run", "-q", "--vm", "qemu", "--memory", fmt.Sprintf("%dM", kind.other), "--", "/bin/true")
			cmd.Env, cmd.Dir = b.env, filepath.Dir(b.home) // no policy file of this tree
			if out, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("msb run: %w: %s", err, out)
			}
			f.took(kind.line, time.Since(began))
		}
	}
	return nil
}
