package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/hostname"
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
	if err != nil { // one that does not start does not stay
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

// listed is a sandbox as a client sees it: nothing of the host's paths.
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

// stop stops a sandbox, and removes it if told so.
func (s *server) stop(ctx context.Context, name string, remove bool) (string, error) {
	st, err := s.own(name, true)
	if err != nil {
		return "", err
	}
	if remove {
		if err := s.only(st).Children().RemoveAll(ctx, st.Name); err != nil {
			return "", err
		}
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
	// The end of a child removes it, too.
	if err := s.only(st).Remove(ctx, st.Name); err != nil && (st.Parent == "" || !errors.Is(err, sandbox.ErrNoSandbox)) {
		return "", err
	}
	return st.Name + " removed with its files", nil
}

func (s *server) network(ctx context.Context, raw json.RawMessage) (string, error) {
	var a networkArgs
	if err := decode(raw, &a); err != nil {
		return "", err
	}
	st, err := s.own(a.Sandbox, false)
	made := err == nil
	if err != nil && (a.Sandbox != "" && a.Sandbox != defaultName || !errors.Is(err, sandbox.ErrNoSandbox)) {
		return "", err
	}
	switch a.Action {
	case "request", "answer":
		if !made {
			return "", err
		}
		if a.Action == "request" {
			return networkTool{s}.request(ctx, st, &a)
		}
		return networkTool{s}.answer(ctx, st, a.Request)
	case "explain":
		if a.To == "" {
			return "", wrong(`say where to, such as "api.github.com:443"`)
		}
		if a.Path != "" && a.Path[0] != '/' && a.Path != "*" {
			return "", wrong("path %q: give one that begins with /", printed(a.Path))
		}
		if strings.Contains(a.To, "://") {
			return "", wrong("to %q is a URL; give HOST:PORT, and its path as path", printed(a.To))
		}
		p := s.opts.Floor // what the default sandbox will be made with
		if made {
			if p, err = s.only(st).Policy(st.Name); err != nil {
				return "", err
			}
		}
		answer, err := sandbox.Explain(p, a.To, strings.ToUpper(a.Method), a.Path)
		if errors.Is(err, sandbox.ErrConfig) { // which says that a sandbox can't start
			return "", wrong("%s", strings.TrimPrefix(err.Error(), sandbox.ErrConfig.Error()+": "))
		}
		if err != nil {
			return "", said{err}
		}
		return explainedAnswer(answer)
	case "denied":
		var d audit.DenialSummary
		if made {
			if d, err = s.only(st).Denied(st.Name); err != nil {
				return "", err
			}
		}
		if d.Empty() {
			return "nothing was denied", nil
		}
		text, err := explained(&d)
		var c capture
		_, _ = c.Write([]byte(text)) // names are the guest's
		return deniedHead + c.untrusted("denied"), err
	}
	return "", wrong("action %q", printed(a.Action))
}

// resolverAnswers is said of port 53, to which no rule applies.
const resolverAnswers = "msb's own resolver answers what is sent to port 53, whatever the address, and no such packet goes out; whether it resolves a name is in the answer about a port of that name, such as NAME:443"

// explainedAnswer is an answer with its steps as lines.
func explainedAnswer(a *sandbox.Answer) (string, error) {
	short := struct {
		sandbox.Answer
		Steps []string `json:"steps"`
	}{*a, []string{}}
	for _, s := range a.Steps {
		if s.What == "port 53" {
			return resolverAnswers, nil
		}
		short.Steps = append(short.Steps, s.Stage+", "+s.What+": "+s.Result)
	}
	return asJSON(short)
}

// deniedHead says how to read what follows.
const deniedHead = "newest first; count is how often (a name counts once, however often it is asked for), others counts what is not in the list\n"

// explained is what was denied, as a client sees it, with the reasons as sentences. What a result has no room for of the
// list, the oldest, is among the others.
func explained(d *audit.DenialSummary) (string, error) {
	all := struct {
		audit.DenialSummary
		Apart int               `json:"apart,omitempty"` // left out
		Why   map[string]string `json:"why,omitempty"`
	}{DenialSummary: *d, Why: map[string]string{}}
	for i := range d.List {
		if why := sandbox.WhyDenied(d.List[i].Reason); why != "" {
			all.Why[d.List[i].Reason] = why
		}
	}
	for {
		text, err := asJSON(all)
		n := len(all.List)
		if err != nil || len(text) <= outputBudget || n == 0 {
			return text, err
		}
		all.Others += all.List[n-1].Count
		all.List = all.List[:n-1]
	}
}

// shownDenials is how many destinations a note names.
const shownDenials = 3

// hostOnly is a name or address that a guest asked for; of what is neither nothing is shown.
func hostOnly(s string) string {
	if addr, err := netip.ParseAddr(s); err == nil && addr.Zone() == "" {
		return addr.String()
	}
	if name, err := hostname.Parse(s); err == nil {
		return name.String()
	}
	return "what is no host name"
}

// deniedNote says what the policy refused meanwhile; "" for nothing.
func deniedNote(d *audit.DenialSummary, name string) string {
	if d.Denied == 0 {
		return ""
	}
	var parts []string
	for i := range d.List[:min(len(d.List), shownDenials)] {
		to := hostOnly(d.List[i].Host)
		if d.List[i].Port != 0 {
			to = fmt.Sprintf("%s:%d", to, d.List[i].Port)
		}
		reason := d.List[i].Reason
		if reason == "" || strings.Trim(reason, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" { // no reason code of msb's
			reason = "denied"
		}
		if n := d.List[i].Count; n > 1 {
			reason += fmt.Sprintf(", %d times", n)
		}
		parts = append(parts, fmt.Sprintf("%q (%s)", to, reason))
	}
	if len(d.List) > shownDenials || d.Others > 0 {
		parts = append(parts, "others")
	}
	if name == "" {
		return fmt.Sprintf("network policy: %d denied: %s\n", d.Denied, strings.Join(parts, ", "))
	}
	return fmt.Sprintf("network policy: %d denied in this sandbox meanwhile: %s; the tool network explains it\n", d.Denied, strings.Join(parts, ", "))
}
