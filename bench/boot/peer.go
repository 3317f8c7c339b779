//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// peerVersion is the microsandbox that scripts/npm/package-lock.json pins.
const peerVersion = "0.7.2"

var _ side = (*peer)(nil)

// peer is microsandbox. Its image is a directory that holds busybox: no registry
// is asked, no layer unpacked.
type peer struct{ program, home, root string }

// preparePeer makes the guest's root, writable as microsandbox wants it.
func preparePeer(program, dir string) (*peer, error) {
	p := &peer{program: program, home: filepath.Join(dir, "home"), root: filepath.Join(dir, "root")}
	if err := os.RemoveAll(p.root); err != nil {
		return nil, err
	}
	for _, d := range []string{"bin", "dev", "etc", "proc", "sys", "tmp"} {
		if err := os.MkdirAll(filepath.Join(p.root, d), 0o755); err != nil {
			return nil, err
		}
	}
	data, err := os.ReadFile("/bin/busybox")
	if err != nil {
		return nil, err
	}
	err = os.WriteFile(filepath.Join(p.root, "bin", "busybox"), data, 0o755)
	if err == nil { // without a root user it runs nothing
		err = os.WriteFile(filepath.Join(p.root, "etc", "passwd"), []byte("root:x:0:0::/:/bin/sh\n"), 0o644)
	}
	for _, name := range []string{"sh", "echo", "true", "sleep", "sync"} {
		if err == nil {
			err = os.Symlink("busybox", filepath.Join(p.root, "bin", name))
		}
	}
	return p, err
}

func (p *peer) env() []string {
	return []string{"PATH=/bin:/usr/bin", "HOME=" + p.home, "MSB_HOME=" + filepath.Join(p.home, ".microsandbox")}
}

func (p *peer) machine() []string {
	return []string{"-q", "-c", fmt.Sprint(guestCPUs), "-m", fmt.Sprintf("%dM", guestMemoryMiB)}
}

// runOnce measures one `msb run` of microsandbox.
func (p *peer) runOnce(ctx context.Context, f values) error {
	argv := append([]string{p.program, "run", "--no-tty"}, p.machine()...)
	t, err := timeCommand(ctx, p.env(), "hi", append(argv, p.root, "--", "/bin/echo", "hi")...)
	if err != nil {
		return err
	}
	f.took(peerPrefix+seriesFirst, t.first)
	f.took(peerPrefix+seriesRun, t.exit)
	return nil
}

// process measures what starting microsandbox's tool costs by itself.
func (p *peer) process(ctx context.Context, f values) error {
	return timeProcess(ctx, p.env(), p.program, f, peerPrefix+seriesProcess)
}

// sandboxName is of the one that runs while round trips are measured.
const sandboxName = "bench"

// create boots a sandbox in the background.
func (p *peer) create(ctx context.Context, f values) error {
	argv := append([]string{p.program, "create", "--replace", "--name", sandboxName}, p.machine()...)
	start := time.Now()
	err := output(ctx, io.Discard, p.env(), append(argv, p.root)...)
	f.took(peerPrefix+seriesReady, time.Since(start))
	return err
}

// execute measures n round trips in one running sandbox, and then the memory
// of its process.
func (p *peer) execute(ctx context.Context, n int, f values) (err error) {
	if err := p.create(ctx, f); err != nil {
		return err
	}
	defer func() {
		start := time.Now()
		err = errors.Join(err, output(ctx, io.Discard, p.env(), p.program, "stop", sandboxName))
		f.took(peerPrefix+seriesClose, time.Since(start))
	}()
	for i := range n + 1 {
		t, err := timeCommand(ctx, p.env(), "", p.program, "exec", "-q", "--no-tty", sandboxName, "--", "/bin/true")
		if err != nil {
			return err
		}
		if i > 0 { // the first reads the program from the directory
			f.took(peerPrefix+seriesExec, t.exit)
		}
	}
	return p.memory(f)
}

// memory is of the one process that is both VMM and everything else.
func (p *peer) memory(f values) error {
	list, err := processes()
	if err != nil {
		return err
	}
	var sum int64
	for _, q := range list {
		if len(q.argv) > 0 && q.argv[0] == p.program {
			sum += q.resident
		}
	}
	if sum == 0 {
		return fmt.Errorf("no process of %s", p.program)
	}
	f.add(peerPrefix+seriesVMM, mib(sum))
	return nil
}

// output runs a command that must succeed.
func output(ctx context.Context, out io.Writer, env []string, argv ...string) error {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	var errText strings.Builder
	cmd.Env, cmd.Stdout, cmd.Stderr = env, out, &errText
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, errText.String())
	}
	return nil
}
