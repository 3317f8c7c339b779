//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/bench/internal/guestwork"
	"github.com/msb-project/msb/sandbox"
)

// Where the guest sees what is measured.
const (
	shared  = "/shared"  // the -v directory
	plain   = "/plain"   // a directory on its own disk
	program = "/program" // has this program
)

// bench is one sandbox and what was measured in it.
type bench struct {
	*options
	env  []string
	home string
	sb   *sandbox.Sandbox
	f    values // of commands and copies
	own  values // on the guest's disk
	dir  values // in the -v directory
	fuse values // in the one of inMemory
}

const sandboxName = "bench"

func measure(ctx context.Context, o *options) (err error) {
	top, err := os.MkdirTemp("", "bench-work-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(top)) }()
	b := &bench{options: o, home: filepath.Join(top, "home"), f: values{}, own: values{}, dir: values{}, fuse: values{}}
	b.env = append(os.Environ(), sandbox.EnvHome+"="+b.home)
	host := filepath.Join(top, "shared")
	image := ""
	if o.tools {
		if image, err = toolsImage(ctx); err != nil {
			return err
		}
	}
	if err := errors.Join(os.Mkdir(host, 0o755), os.Mkdir(filepath.Join(top, "program"), 0o755), copySelf(filepath.Join(top, "program", "work"))); err != nil {
		return err
	}
	err = sandbox.Create(ctx, sandbox.Config{
		Home: b.home, Program: o.msb, Backend: o.backend, Name: sandboxName, Image: image, NoNet: true, Memory: 2 << 30, Disk: 8 << 30,
		Directories: []sandbox.Directory{{Host: host, Guest: shared, Writable: true}, {Host: filepath.Join(top, "program"), Guest: program}},
	})
	if err != nil {
		return err
	}
	if b.sb, err = sandbox.StartNamed(ctx, sandboxName, sandbox.StartOptions{Home: b.home, Program: o.msb}); err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, b.sb.Stop(context.WithoutCancel(ctx)), b.sb.Close())
	}()
	if _, err := b.guest(ctx, "mkdir", "-p", plain); err != nil {
		return err
	}
	steps := []func(context.Context) error{b.commands, b.copies, b.inTurns}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return errors.Join(b.write(os.Stdout), b.set().WriteFile(o.out))
}

// copySelf makes the guest's program of this one, which is static.
func copySelf(to string) error {
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return err
	}
	return os.WriteFile(to, self, 0o755)
}

// guest runs a command in the sandbox, which must succeed.
func (b *bench) guest(ctx context.Context, argv ...string) ([]byte, error) {
	var out, errText bytes.Buffer
	st, err := b.sb.Exec(ctx, sandbox.ExecOptions{Argv: argv, Stdout: &out, Stderr: &errText})
	if err == nil && st.Code != 0 {
		err = fmt.Errorf("exit code %d: %s", st.Code, errText.Bytes())
	}
	if err != nil {
		return nil, fmt.Errorf("%q in the guest: %w", argv, err)
	}
	return out.Bytes(), nil
}

// inside runs this program in the guest and adds its figures to f.
func (b *bench) inside(ctx context.Context, f values, what, dir string, n int, more ...string) error {
	out, err := b.guest(ctx, append([]string{program + "/work", guestwork.Verb, what, dir, strconv.Itoa(n)}, more...)...)
	if err != nil {
		return err
	}
	got, err := guestwork.Parse(out)
	if err != nil {
		return err
	}
	for series, more := range got {
		f[series] = append(f[series], more...)
	}
	return nil
}

// commands compares a command of the host's with a process that the guest starts by itself, in ten turns.
func (b *bench) commands(ctx context.Context) error {
	const turns = 10
	for range turns {
		if err := b.inside(ctx, b.f, doExec, plain, b.execs/turns); err != nil {
			return err
		}
		for i := range b.execs/turns + 1 {
			began := time.Now()
			if _, err := b.guest(ctx, "/bin/true"); err != nil {
				return err
			}
			if i > 0 { // as inside
				b.f.took(seriesExec, time.Since(began))
			}
		}
	}
	return nil
}

// settle has guest and host write to their disks what was copied before, so that the next copy doesn't wait for it.
func (b *bench) settle(ctx context.Context) error {
	_, err := b.guest(ctx, "sync")
	unix.Sync()
	return err
}

// copies compares msb cp with dd, and looks at the memory of who copies.
func (b *bench) copies(ctx context.Context) error {
	const name = "/copied"
	file := filepath.Join(b.home, "..", "copied")
	if err := guestwork.WriteFile(file, b.copyMiB); err != nil {
		return err
	}
	rate := func(began time.Time) float64 { return float64(b.copyMiB) / time.Since(began).Seconds() }
	if err := os.WriteFile(file+".small", guestwork.Pattern(), 0o600); err != nil {
		return err
	}
	for range max(b.rounds/2, 1) {
		if err := b.settle(ctx); err != nil {
			return err
		}
		began := time.Now()
		if _, err := b.guest(ctx, "dd", "if=/dev/zero", "of="+name, "bs=1M", "count="+strconv.Itoa(b.copyMiB), "conv=fsync"); err != nil {
			return err
		}
		b.f.add(seriesDDIn, rate(began))
		for _, c := range []struct{ series, memory, from, to string }{
			{"", seriesSmallMemory, file + ".small", sandboxName + ":/small"},
			{seriesCopyIn, seriesCopyMemory, file, sandboxName + ":" + name},
			{seriesCopyOut, seriesCopyMemory, sandboxName + ":" + name, file + ".back"},
		} {
			if err := b.settle(ctx); err != nil {
				return err
			}
			began := time.Now()
			cmd := exec.CommandContext(ctx, b.msb, "cp", c.from, c.to)
			cmd.Env = b.env
			most, err := runWatched(cmd)
			if err != nil {
				return fmt.Errorf("msb cp: %w", err)
			}
			if c.series != "" {
				b.f.add(c.series, rate(began))
			}
			b.f.add(c.memory, most)
		}
		if _, err := b.guest(ctx, "sh", "-c", "sync; echo 3 > /proc/sys/vm/drop_caches"); err != nil {
			return err
		}
		began = time.Now()
		if _, err := b.guest(ctx, "dd", "if="+name, "of=/dev/null", "bs=1M"); err != nil {
			return err
		}
		b.f.add(seriesDDOut, rate(began))
	}
	return errors.Join(os.Remove(file), os.Remove(file+".small"), os.Remove(file+".back"))
}

// runWatched runs a program and returns the most memory that it had, in MiB. What the kernel counts for its parent (ru_maxrss)
// begins with the parent's own.
func runWatched(cmd *exec.Cmd) (most float64, err error) {
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case err := <-ended:
			if err != nil {
				err = fmt.Errorf("%w: %s", err, out.Bytes())
			}
			return most, err
		case <-time.After(5 * time.Millisecond):
		}
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
		if _, line, found := strings.Cut(string(status), "VmHWM:"); err == nil && found {
			kib, _ := strconv.ParseFloat(strings.Fields(line)[0], 64)
			most = max(most, kib/1024)
		}
	}
}

// side is where a task is done, and where its figures go.
type side struct {
	f   values
	dir string
}

// inTurns does everything that is done in both directories.
func (b *bench) inTurns(ctx context.Context) error {
	tasks := []task{
		{what: guestwork.DoMeta, n: b.files}, {what: guestwork.DoStream, n: b.readMiB},
	}
	if b.tools {
		more, err := b.toolTasks(ctx)
		if err != nil {
			return err
		}
		tasks = append(tasks, more...)
	}
	served, end := context.WithCancel(ctx)
	gone := make(chan error, 1)
	go func() {
		_, err := b.guest(served, program+"/work", guestwork.Verb, doMemory, inMemory)
		gone <- err
	}()
	defer func() {
		end()
		<-gone // it was cancelled
	}()
	if _, err := b.guest(ctx, "sh", "-c", "for i in $(seq 100); do grep -q \" "+inMemory+" fuse\" /proc/mounts && exit; sleep 0.1; done; exit 1"); err != nil {
		return fmt.Errorf("no directory of a server in the guest: %w", err)
	}
	for round := range b.rounds {
		for _, t := range tasks {
			sides := []side{{b.own, plain}, {b.dir, shared}}
			if round%2 == 1 {
				sides[0], sides[1] = sides[1], sides[0]
			}
			if t.before == nil && t.dir == "" {
				sides = append(sides, side{b.fuse, inMemory})
			}
			for _, s := range sides {
				if t.before != nil {
					if _, err := b.guest(ctx, t.before(s.dir, round)...); err != nil {
						return err
					}
				}
				if err := b.inside(ctx, s.f, t.what, filepath.Join(s.dir, t.dir), t.n, t.argv...); err != nil {
					return err
				}
			}
			fmt.Fprintf(os.Stderr, "round %d of %d: %s %s\n", round+1, b.rounds, t.what, t.dir)
		}
	}
	return nil
}
