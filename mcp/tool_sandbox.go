package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/msb-project/msb/sandbox"
)

func (s *server) sandboxRun(ctx context.Context, raw json.RawMessage) (string, error) {
	var a struct {
		program
		machineArgs
	}
	if err := decode(raw, &a); err != nil {
		return "", err
	}
	call, err := a.prepare()
	if err != nil {
		return "", err
	}
	cfg, err := s.config(&a.machineArgs)
	if err != nil {
		return "", err
	}
	if err := mayRead(cfg.Policy); err != nil {
		return "", err
	}
	free, err := s.reserve()
	if err != nil {
		return "", err
	}
	defer free()
	m, err := s.runner.run(ctx, cfg)
	if err != nil {
		return "", s.opts.imageFault(cfg.Image, unusable(err))
	}
	out, err := call.run(ctx, m, nil)
	if closeErr := m.Close(); err == nil { // it waits until nothing is left
		err = closeErr
	}
	if err != nil {
		return "", err
	}
	denied := m.Denied()
	return out.text(ctx, deniedNote(&denied, ""), nil)
}

func (s *server) sandboxCreate(ctx context.Context, raw json.RawMessage) (string, error) {
	var a struct {
		Name string `json:"name"`
		machineArgs
	}
	if err := decode(raw, &a); err != nil {
		return "", err
	}
	return s.makeSandbox(ctx, a.Name, &a.machineArgs)
}

// makeSandbox makes and starts a sandbox with a name.
func (s *server) makeSandbox(ctx context.Context, name string, a *machineArgs) (string, error) {
	if err := sandbox.CheckName(name); err != nil {
		return "", err
	}
	if name == defaultName {
		name = s.defaultName()
	}
	if err := s.create(ctx, name, a); err != nil {
		return "", err
	}
	m, _, err := s.use(ctx, name)
	if err == nil && a.made != nil {
		if err = a.made(ctx, m); err != nil {
			_ = m.Close() // the session's
		}
	}
	if err != nil { // a sandbox that doesn't start is removed
		return "", errors.Join(err, s.discard(context.WithoutCancel(ctx), name))
	}
	if err := m.Close(); err != nil {
		return "", err
	}
	st, err := s.own(name, false)
	if err != nil {
		return "", err
	}
	useless, err := s.opts.useless(a)
	if err != nil {
		return "", err
	}
	text, err := asJSON(row(st, s.label))
	return strings.Join(append([]string{text}, useless...), "\n"), err
}

// listed is a sandbox as a client sees it, without paths of the host.
type listed struct {
	Name     string `json:"name"`
	Running  bool   `json:"running"`
	Image    string `json:"image"`
	CPUs     int    `json:"cpus"`
	MemoryMB int64  `json:"memory_mb"`
	DiskMB   int64  `json:"disk_mb"`
	UsedMB   int64  `json:"disk_used_mb"`
	Ended    string `json:"ended,omitempty"`
	Unusable string `json:"unusable,omitempty"`
}

func row(st *sandbox.Status, label string) listed {
	l := listed{Name: st.Name, Running: st.Running, Image: st.Image, CPUs: st.CPUs, MemoryMB: st.Memory >> 20, DiskMB: st.Disk >> 20, UsedMB: st.Used >> 20}
	if st.End != nil && st.End.Kind != "" {
		l.Ended = string(st.End.Kind)
	}
	if st.Label != label {
		l.Unusable = madeBefore + "; sandbox_stop stops or removes it; " + getBack
	}
	return l
}

func (s *server) sandboxList(_ context.Context, raw json.RawMessage) (string, error) {
	if err := decode(raw, &struct{}{}); err != nil {
		return "", err
	}
	mine, err := s.mine()
	if err != nil {
		return "", err
	}
	images, err := s.opts.images()
	if err != nil {
		return "", err
	}
	all := struct {
		Sandboxes []listed `json:"sandboxes"`
		Most      int      `json:"max_sandboxes"`
		CPUs      int      `json:"max_cpus"`
		MemoryMB  int64    `json:"max_memory_mb"`
		Images    any      `json:"images"`
		Shared    []string `json:"directories,omitempty"`
		Hidden    []string `json:"hidden,omitempty"`
		Secrets   []secret `json:"secrets,omitempty"`
	}{[]listed{}, s.opts.Sandboxes, s.opts.CPUs, s.opts.Memory >> 20, images, s.opts.shown(), s.opts.hidden(), s.opts.secrets()}
	for i := range mine {
		all.Sandboxes = append(all.Sandboxes, row(&mine[i], s.label))
	}
	return asJSON(all)
}

func (s *server) sandboxStop(ctx context.Context, raw json.RawMessage) (string, error) {
	var a struct {
		Sandbox string `json:"sandbox"`
		Remove  bool   `json:"remove"`
	}
	if err := decode(raw, &a); err != nil {
		return "", err
	}
	return s.stop(ctx, a.Sandbox, a.Remove)
}

// stop stops a sandbox, and removes it if remove is set.
func (s *server) stop(ctx context.Context, name string, remove bool) (string, error) {
	st, err := s.own(name, true)
	if err != nil {
		return "", err
	}
	done := "stopped"
	if err := s.only(st).Stop(ctx, st.Name); errors.Is(err, sandbox.ErrNotRunning) {
		done = "was not running"
	} else if err != nil {
		return "", err
	}
	if !remove && st.Parent == "" {
		return fmt.Sprintf("%s %s; its files stay", st.Name, done), nil
	}
	if err := s.remove(ctx, st); err != nil {
		return "", err
	}
	return st.Name + " removed with its files", nil
}

// secret is a secret of the policy as a client sees it, without its source.
type secret struct {
	Variable string   `json:"variable"`
	Hosts    []string `json:"hosts"`
	In       []string `json:"in"`
}

func (o *Options) secrets() []secret {
	all := make([]secret, 0, len(o.Floor.Secrets))
	for i := range o.Floor.Secrets {
		s := &o.Floor.Secrets[i]
		one := secret{Variable: s.Name}
		for _, h := range s.Hosts {
			one.Hosts = append(one.Hosts, h.String())
		}
		for _, p := range s.In {
			one.In = append(one.In, p.String())
		}
		all = append(all, one)
	}
	return all
}
