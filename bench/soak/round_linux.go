package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/sandbox"
)

const (
	stays, comes, clone = "stays", "comes", "clone"
	guestPort           = 8080
)

// soak is the state directory in which the rounds are, and the files that they copy.
type soak struct {
	program, home, files string
	backend              string
	state                *sandbox.Home
}

func (s *soak) make(ctx context.Context, name string) (*sandbox.Sandbox, error) {
	return sandbox.Start(ctx, sandbox.Config{
		Home: s.home, Program: s.program, Name: name, Backend: s.backend, Memory: 128 << 20, Disk: 256 << 20,
	})
}

// use does with a sandbox that runs what can be done more than once.
func (s *soak) use(ctx context.Context, sb *sandbox.Sandbox, round int) error {
	steps := []func(context.Context, *sandbox.Sandbox, int) error{s.command, s.copies, s.publish, s.snapshot}
	for _, step := range steps {
		if err := step(ctx, sb, round); err != nil {
			return fmt.Errorf("%s: %w", sb.Name(), err)
		}
	}
	return nil
}

// run runs a command, which must succeed, and returns its output.
func run(ctx context.Context, sb *sandbox.Sandbox, argv ...string) (string, error) {
	var out bytes.Buffer
	st, err := sb.Exec(ctx, sandbox.ExecOptions{Argv: argv, Stdout: &out, Stderr: &out})
	if err == nil && st.Code != 0 {
		err = fmt.Errorf("%q: exit code %d: %s", argv, st.Code, out.String())
	}
	return out.String(), err
}

func (s *soak) command(ctx context.Context, sb *sandbox.Sandbox, round int) error {
	want := "round " + strconv.Itoa(round) + "\n"
	got, err := run(ctx, sb, "sh", "-c", "echo round "+strconv.Itoa(round)+" | tee /page")
	if err == nil && got != want {
		err = fmt.Errorf("the command said %q", got)
	}
	return err
}

// copies copies a directory into the guest, and back.
func (s *soak) copies(ctx context.Context, sb *sandbox.Sandbox, _ int) error {
	back := filepath.Join(filepath.Dir(s.files), "back")
	if err := os.RemoveAll(back); err != nil {
		return err
	}
	if _, err := sb.CopyTo(ctx, s.files, "/copied", sandbox.CopyOptions{}); err != nil {
		return err
	}
	if _, err := sb.CopyFrom(ctx, "/copied", back, sandbox.CopyOptions{}); err != nil {
		return err
	}
	_, err := run(ctx, sb, "rm", "-r", "/copied")
	return err
}

// publish serves a page in the guest, and reads it through a port of this machine.
func (s *soak) publish(ctx context.Context, sb *sandbox.Sandbox, round int) (err error) {
	server := []string{"busybox", "nc", "-ll", "-p", strconv.Itoa(guestPort), "-e", "cat", "/page"}
	job, err := sb.StartJob(ctx, "server", sandbox.ExecOptions{Argv: server})
	if err != nil {
		return err
	}
	p, err := s.state.Ports().Add(ctx, sb.Name(), sandbox.Port{Guest: guestPort})
	if err != nil {
		return err
	}
	want := "round " + strconv.Itoa(round) + "\n"
	for tries := 0; ; tries++ { // until the server listens
		page, err := read(ctx, int(p.Host))
		if err == nil && page == want {
			break
		}
		if tries == 100 {
			return fmt.Errorf("through the port came %q, %w", page, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
	if _, err := s.state.Ports().Remove(ctx, sb.Name(), p); err != nil {
		return err
	}
	if err := job.Kill(ctx, agentclient.SIGKILL); err != nil {
		return err
	}
	if _, err := job.Wait(ctx); err != nil {
		return err
	}
	return job.Remove(ctx)
}

func read(ctx context.Context, port int) (string, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	b, err := io.ReadAll(c)
	return string(b), err
}

// snapshot takes one of the guest as it runs, makes a sandbox of it, and removes both. Every third clone is started.
func (s *soak) snapshot(ctx context.Context, sb *sandbox.Sandbox, round int) error {
	snapshots := s.state.Snapshots()
	snap, err := snapshots.Create(ctx, sb.Name(), sandbox.SnapshotOptions{Name: "snap"})
	if err != nil {
		return err
	}
	if err := snapshots.Clone(ctx, snap.Name, clone, sandbox.CloneOptions{}); err != nil {
		return err
	}
	if round%3 == 0 && sb.Name() == comes {
		err = s.startClone(ctx, round)
	}
	return errors.Join(err, s.remove(ctx, clone), snapshots.Remove(snap.Name))
}

func (s *soak) startClone(ctx context.Context, round int) error {
	sb, err := sandbox.StartNamed(ctx, clone, sandbox.StartOptions{Home: s.home, Program: s.program})
	if err != nil {
		return err
	}
	defer func() { _ = sb.Close() }()
	page, err := run(ctx, sb, "cat", "/page")
	if err == nil && page != "round "+strconv.Itoa(round)+"\n" {
		err = fmt.Errorf("the clone has %q", page)
	}
	return err
}

// remove ends a sandbox, if it runs, and removes it.
func (s *soak) remove(ctx context.Context, name string) error {
	if err := s.state.Stop(ctx, name); err != nil && !errors.Is(err, sandbox.ErrNotRunning) {
		return err
	}
	return s.state.Remove(ctx, name)
}

// round is one of them. It returns how many processes there are in the guest that stays.
func (s *soak) round(ctx context.Context, n int) (guest int64, err error) {
	sb, err := s.make(ctx, comes)
	if err != nil {
		return 0, err
	}
	err = s.use(ctx, sb, n)
	if err := errors.Join(err, sb.Close(), s.remove(ctx, comes)); err != nil {
		return 0, err
	}
	if sb, err = s.state.Connect(ctx, stays); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, sb.Close()) }()
	if err := s.use(ctx, sb, n); err != nil {
		return 0, err
	}
	stats, err := sb.Stats(ctx)
	return int64(stats.Processes), err
}
