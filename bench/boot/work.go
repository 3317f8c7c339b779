//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/msb-project/msb/bench/internal/guestwork"
)

// What is done in a running sandbox, each round: as much as an emulated host does in a minute.
const (
	workCopyMiB   = 32
	workStreamMiB = 16
	workFiles     = 100
)

// Where a guest sees what its host shares with it.
const (
	guestShared  = "/shared"  // writable
	guestProgram = "/program" // the directory with this program, read-only
	guestOwn     = "/own"     // on its own disk
)

// tool is the command line of msb or of its peer, as far as it works with a sandbox.
type tool struct {
	program string
	env     []string
	start   [][]string // the commands that start the sandbox
	exec    []string   // stands before a command of the guest's
	remove  []string
	copy    string // the verb that copies
}

// workName is of the sandbox that is worked in.
const workName = "work"

// workTool works in a sandbox that sees the directory host.
func (m *ours) workTool(host string) tool {
	return tool{
		program: m.program, env: m.env(),
		start: [][]string{
			{"create", "-q", "--vm", m.backend, "--cpus", fmt.Sprint(guestCPUs), "--memory", fmt.Sprintf("%dM", guestMemoryMiB), "--disk", "1G",
				"-v", host + ":" + guestShared + ":rw", "-v", filepath.Dir(innerSelf) + ":" + guestProgram, workName},
			{"start", workName},
		},
		exec:   []string{"exec", workName, "--"},
		remove: []string{"rm", "-f", workName},
		copy:   "cp",
	}
}

// work measures copies and a host directory in one sandbox.
func (m *ours) work(ctx context.Context, f values) error {
	return work(ctx, m.workTool, f, "", guestShared)
}

// disk measures the guest's own disk. microsandbox's root is a directory of its host's.
func (m *ours) disk(ctx context.Context, f values) error {
	return work(ctx, m.workTool, f, diskPrefix, guestOwn)
}

// workTool works in a sandbox that sees the directory host.
func (p *peer) workTool(host string) tool {
	start := append([]string{"create", "--replace", "--name", workName}, p.machine()...)
	return tool{
		program: p.program, env: p.env(),
		start:  [][]string{append(start, "-v", host+":"+guestShared, "-v", filepath.Dir(innerSelf)+":"+guestProgram+":ro", p.root)},
		exec:   []string{"exec", "-q", "--no-tty", workName, "--"},
		remove: []string{"remove", "-q", "-f", workName},
		copy:   "copy",
	}
}

// work measures copies and a host directory in one sandbox.
func (p *peer) work(ctx context.Context, f values) error {
	return work(ctx, p.workTool, f, peerPrefix, guestShared)
}

// work measures files in one directory of a sandbox's guest and, if that is the host's, copies.
func work(ctx context.Context, with func(host string) tool, f values, prefix, at string) (err error) {
	dir, err := os.MkdirTemp(innerState, "work-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	host := filepath.Join(dir, "shared")
	if err := os.Mkdir(host, 0o755); err != nil {
		return err
	}
	t := with(host)
	_ = t.run(ctx, io.Discard, t.remove...) // of an attempt before, if there is one
	for _, args := range t.start {
		if err := t.run(ctx, io.Discard, args...); err != nil {
			return err
		}
	}
	defer func() { err = errors.Join(err, t.run(ctx, io.Discard, t.remove...)) }()
	// The first run reads the program.
	if _, err := t.inside(ctx, guestwork.DoMeta, at, 10); err != nil {
		return err
	}
	if at == guestShared {
		if err := t.copies(ctx, f, prefix, filepath.Join(dir, "copied")); err != nil {
			return err
		}
	}
	for _, do := range []struct {
		what string
		n    int
	}{{guestwork.DoMeta, workFiles}, {guestwork.DoStream, workStreamMiB}} {
		got, err := t.inside(ctx, do.what, at, do.n)
		if err != nil {
			return err
		}
		for series, v := range got {
			f[prefix+series] = append(f[prefix+series], v...)
		}
	}
	return nil
}

func (t tool) run(ctx context.Context, out io.Writer, args ...string) error {
	return output(ctx, out, t.env, append([]string{t.program}, args...)...)
}

// inside has this program work in a directory of the guest's.
func (t tool) inside(ctx context.Context, what, dir string, n int) (guestwork.Values, error) {
	var out bytes.Buffer
	args := append(t.exec[:len(t.exec):len(t.exec)], guestProgram+"/"+filepath.Base(innerSelf), guestwork.Verb, what, dir, strconv.Itoa(n))
	if err := t.run(ctx, &out, args...); err != nil {
		return nil, err
	}
	return guestwork.Parse(out.Bytes())
}

// copies copies a file into the guest and out again, and compares it with what it was.
func (t tool) copies(ctx context.Context, f values, prefix, file string) error {
	if err := guestwork.WriteFile(file, workCopyMiB); err != nil {
		return err
	}
	for _, c := range []struct{ series, from, to string }{
		{seriesCopyIn, file, workName + ":/copied"},
		{seriesCopyOut, workName + ":/copied", file + ".back"},
	} {
		if err := t.run(ctx, io.Discard, append(t.exec[:len(t.exec):len(t.exec)], "/bin/sync")...); err != nil {
			return err
		}
		began := time.Now()
		if err := t.run(ctx, io.Discard, t.copy, "-q", c.from, c.to); err != nil {
			return err
		}
		f.add(prefix+c.series, workCopyMiB/time.Since(began).Seconds())
	}
	was, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	is, err := os.ReadFile(file + ".back")
	if err == nil && !bytes.Equal(was, is) {
		err = fmt.Errorf("%d bytes came back from the guest, other ones than the %d that were copied into it", len(is), len(was))
	}
	return err
}
