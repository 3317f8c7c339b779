package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/image"
	"github.com/msb-project/msb/internal/vm"
	"github.com/msb-project/msb/internal/vm/runner"
	"github.com/msb-project/msb/policies/grants"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// Start brings up the sandbox that cfg describes and returns once commands can be run in it. Its errors have a Kind. The
// context bounds the start alone; Close ends the sandbox. With Config.Name it is Create and StartNamed, and removes a
// sandbox that doesn't start.
func Start(ctx context.Context, cfg Config) (*Sandbox, error) {
	s, err := start(ctx, cfg)
	return s, Fail(err)
}

func start(ctx context.Context, cfg Config) (*Sandbox, error) {
	if cfg.Name != "" {
		return startNew(ctx, &cfg)
	}
	if err := errors.Join(cfg.fill(), absolute(&cfg.PolicyFile)); err != nil {
		return nil, err
	}
	home, err := OpenHome(cfg.Home)
	if err != nil {
		return nil, err
	}
	if cfg.Directories, err = cfg.realDirectories(home); err != nil {
		return nil, err
	}
	admitted, err := home.Trust().Admit(cfg.Policy, AdmitOptions{Floor: cfg.Floor, Trust: cfg.Trust})
	if err != nil {
		return nil, err
	}
	img, err := resolve(ctx, home, &cfg, admitted)
	if err == nil {
		err = cfg.makeVolumes(home)
	}
	if err != nil {
		return nil, err
	}
	run, err := newRun(home)
	if err != nil {
		return nil, err
	}
	return bringUp(ctx, home, run, img, &cfg, admitted)
}

// bringUp starts the supervisor of a run, whose lock it takes over, and waits until the sandbox is ready.
func bringUp(ctx context.Context, home *Home, run *runDir, img *image.Image, cfg *Config, admitted *Admission) (*Sandbox, error) {
	s := &Sandbox{name: cfg.Name, image: img, home: home, run: run, keep: cfg.Keep, review: cfg.review, over: make(chan struct{})}
	s.confined = &Config{Policy: cfg.Policy, PolicyFile: cfg.PolicyFile, Floor: cfg.Floor, Audit: cfg.Audit, Pcap: cfg.Pcap, Learn: cfg.Learn}
	agent, err := agentDisk(home, cfg.Program)
	if err == nil {
		var p *state.Plan
		if p, err = s.plan(cfg, admitted, agent); err == nil {
			err = s.launch(cfg, p)
		}
	}
	if err != nil {
		return nil, errors.Join(err, run.lock.Close(), s.dropRun())
	}
	if err := s.await(ctx, cfg.Notice); err != nil {
		return nil, errors.Join(err, s.abandon())
	}
	s.pcap, s.watched, s.notice = cfg.Pcap != "", true, cfg.Notice
	go s.watch()
	return s, nil
}

// plan makes the writable disk, if there is one, and returns what the supervisor needs to know.
func (s *Sandbox) plan(cfg *Config, admitted *Admission, agent string) (*state.Plan, error) {
	p := &state.Plan{
		Spec: specOf(cfg, admitted), ID: s.run.id, Home: s.home.Dir(), Dir: s.run.dir, Holds: grants.HoldsOf(admitted.Policy),
		AgentDisk: agent, ImageDisk: s.image.DiskPath, Image: s.image.Config, Learn: cfg.Learn, Keep: cfg.Keep, Attached: cfg.Attached, Review: cfg.review, Children: cfg.Children != nil && cfg.Name != "" && !cfg.review, CacheWork: cfg.cacheWork, ForgetCA: cfg.forget, Pod: cfg.Pod,
	}
	p.Name, p.Hide = s.name, cfg.hidden()
	if p.Hostname == "" {
		p.Hostname = s.run.id
	}
	if p.Audit == "" {
		p.Audit = filepath.Join(s.run.dir, state.AuditLog)
	}
	if cfg.Disk > 0 {
		p.UpperDisk = filepath.Join(s.run.dir, state.UpperDisk)
		if err := state.CheckRoom(s.run.dir); err != nil {
			return nil, err
		}
	}
	if cfg.Disk > 0 && s.name == "" && !cfg.ownDisk {
		if err := image.CreateUpper(p.UpperDisk, cfg.Disk); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// launch starts the supervisor and hands it its descriptors.
func (s *Sandbox) launch(cfg *Config, p *state.Plan) error {
	data, err := json.Marshal(p)
	if err != nil {
		return err
	}
	planR, planW, err := os.Pipe()
	if err != nil {
		return err
	}
	statusR, statusW, err := os.Pipe()
	if err != nil {
		return errors.Join(err, closeAll(planR, planW))
	}
	ours, theirs, err := state.SocketPair()
	if err != nil {
		return errors.Join(err, closeAll(planR, planW, statusR, statusW))
	}
	log, err := os.OpenFile(filepath.Join(s.run.dir, state.SupervisorLog), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return errors.Join(err, closeAll(planR, planW, statusR, statusW, theirs), ours.Close())
	}
	s.cmd = exec.Command(cfg.Program, Verb) //nolint:noctx // it outlives the start's context; Close ends it
	if cfg.Program == runner.ThisProgram {
		s.cmd.Args[0] = os.Args[0]
	}
	s.cmd.Stdout, s.cmd.Stderr = log, log
	s.cmd.ExtraFiles = []*os.File{planR, statusW, theirs, s.run.lock}
	// A process group of its own, since Ctrl-C in the terminal is meant for the guest.
	s.cmd.SysProcAttr = ownGroup(s.name != "")
	if s.name != "" {
		leaveDirectory(s.cmd)
	}
	err = s.cmd.Start()
	_ = closeAll(planR, statusW, theirs, log, s.run.lock)
	if err != nil {
		return errors.Join(fmt.Errorf("starting the supervisor: %w", err), closeAll(planW, statusR), ours.Close())
	}
	s.pipe, s.lines = statusR, json.NewDecoder(statusR)
	go func() {
		_, _ = planW.Write(data) // a supervisor that died without reading says so by its status
		_ = planW.Close()
	}()
	s.client, err = agentclient.Attach(ours)
	if err != nil {
		return errors.Join(err, ours.Close(), s.cmd.Wait())
	}
	return nil
}

// ownGroup keeps the terminal's signals from the supervisor; with stays, also its hang-up.
func ownGroup(stays bool) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: !stays, Setsid: stays}
}

// leaveDirectory starts a supervisor that outlives its caller in /, so that it keeps no file system busy. Relative paths
// are made absolute for it.
func leaveDirectory(cmd *exec.Cmd) {
	if abs, err := filepath.Abs(cmd.Path); err == nil && filepath.Base(cmd.Path) != cmd.Path {
		cmd.Path = abs
	}
	cmd.Dir = "/"
	if lib := os.Getenv(vm.LibDirEnv); lib != "" && !filepath.IsAbs(lib) {
		if abs, err := filepath.Abs(lib); err == nil {
			cmd.Env = append(os.Environ(), vm.LibDirEnv+"="+abs)
		}
	}
}

// await reads status lines until the sandbox is ready or has failed.
func (s *Sandbox) await(ctx context.Context, notice func(string)) error {
	stop := context.AfterFunc(ctx, func() { _ = s.client.Close() })
	defer stop()
	for {
		line, err := s.next()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return err
		case line.Ready != nil:
			s.info = *line.Ready
			return nil
		case line.Notice != "":
			notice(line.Notice)
		}
	}
}

// next reads one status line; a failure that the supervisor names is the error.
func (s *Sandbox) next() (state.StatusLine, error) {
	var line state.StatusLine
	if err := s.lines.Decode(&line); err != nil {
		return line, fmt.Errorf("%w%s", ErrSupervisor, lastWords(s))
	}
	if f := line.Failed; f != nil {
		return line, state.FailAs(f.Kind, errors.New(f.Message))
	}
	return line, nil
}

// lastWords is the end of the supervisor's own log, where a crash leaves its trace.
func lastWords(s *Sandbox) string {
	b, err := state.ReadOwn(filepath.Join(s.run.dir, state.SupervisorLog))
	if err != nil || len(bytes.TrimSpace(b)) == 0 {
		return ""
	}
	const tail = 2 << 10
	return ":\n" + string(bytes.TrimSpace(b[max(0, len(b)-tail):]))
}

// watch waits for the supervisor's last word.
func (s *Sandbox) watch() {
	for {
		line, err := s.next()
		if err == nil && line.Notice != "" {
			s.notice(line.Notice)
			continue
		}
		if err == nil && line.Denied != nil {
			s.denied = *line.Denied
			continue
		}
		s.failure = err
		close(s.over)
		return
	}
}

func closeAll(files ...*os.File) error {
	errs := make([]error, 0, len(files))
	for _, f := range files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}
