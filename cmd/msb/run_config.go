package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/msb-project/msb/image"
	"github.com/msb-project/msb/image/progressbar"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox"
)

// errNoCommand is a command line without the command to run.
var errNoCommand = errors.New("name the command to run, as in msb exec -it NAME sh")

// config merges the policy's [sandbox] table and the flags, which win.
func (f *runFlags) config(ui *ui, args []string, dash int) (sandbox.Config, []string, error) {
	var cfg sandbox.Config
	if err := f.check(); err != nil {
		return cfg, nil, &usageError{err: err, help: "msb run --help"}
	}
	pcap, err := f.pcap.options()
	if err != nil {
		return cfg, nil, &usageError{err: err, help: "msb run --help"}
	}
	err = apart([]namedFile{
		{"--audit", f.audit, true}, {"--pcap", f.pcap.path, true}, {"--learn", f.learn, true},
		{"--policy", f.policy, false}, {"--floor", f.floor, false},
	}, "msb run --help")
	if err != nil {
		return cfg, nil, err
	}
	ref, argv := splitArgs(args, dash)
	p, err := f.loadPolicy()
	if err != nil {
		return cfg, nil, err
	}
	cfg = sandbox.Config{
		Policy: p, Trust: f.trust, PolicyImage: ref == "" && p.Sandbox.Image != "", NoNet: f.noNet, HTTPProxy: f.httpProxy, Image: cmp.Or(ref, p.Sandbox.Image), Pull: image.Pull(f.pull),
		Backend: f.backend, Cold: f.cold, CPUs: cmp.Or(f.cpus, p.Sandbox.CPUs), Memory: p.Sandbox.Memory,
		Hostname: f.hostname, Audit: f.audit, Pcap: f.pcap.path, PcapOptions: pcap, Learn: f.learn, Lifetime: f.life.maxDuration, IdleStop: f.life.idleTimeout, Keep: !f.remove && f.name == "", Name: f.name,
		Notice: func(why string) { ui.note("%s", why) },
	}
	if f.floor != "" {
		if cfg.Floor, err = sandbox.LoadPolicy(f.floor); err != nil {
			return cfg, nil, err
		}
		if _, err := policies.Tighten(cfg.Floor, p); err != nil {
			return cfg, nil, sandbox.Fail(err)
		}
	}
	if cfg.Directories, cfg.Volumes, err = parseVolumes(f.volumes); err != nil {
		return cfg, nil, &usageError{err: err, help: "msb run --help"}
	}
	if f.copiesIn, err = parseCopies(f.copies); err != nil {
		return cfg, nil, &usageError{err: err, help: "msb run --help"}
	}
	if cfg.Tmpfs, err = parseTmpfs(f.tmpfs); err != nil {
		return cfg, nil, &usageError{err: err, help: "msb run --help"}
	}
	if cfg.Ports, err = parsePorts(f.ports); err != nil {
		return cfg, nil, &usageError{err: err, help: "msb run --help"}
	}
	if cfg.Labels, err = parseLabels(f.labels); err != nil {
		return cfg, nil, &usageError{err: err, help: "msb run --help"}
	}
	if cfg.Restart, err = sandbox.ParseRestart(f.restart); err != nil {
		return cfg, nil, &usageError{err: fmt.Errorf("--restart: %w", err), help: "msb run --help"}
	}
	if !cfg.Restart.None() && f.name == "" {
		return cfg, nil, &usageError{err: errRestartAttached, help: "msb run --help"}
	}
	if !cfg.Restart.None() && f.temporary() {
		return cfg, nil, &usageError{err: errors.New("--restart and --rm: one runs the command again when it has ended, the other removes the sandbox then; leave one out"), help: "msb run --help"}
	}
	cfg.ReadOnly, cfg.AutoRemove, cfg.Attached = f.readOnly, f.temporary(), f.temporary() && !f.detach
	cfg.Hide, cfg.HideCredentials, cfg.DirectoryUser = f.hide, f.hideCredentials, f.user
	cfg.Caches = f.caches
	if f.name != "" {
		cfg.Env = f.environ() // for every command, at each start
	}
	if !f.rules.Given() {
		cfg.PolicyFile = f.policy // flags can't be merged into a later version of the file
	}
	cfg.Progress = progressbar.New(os.Stderr, progressMode(f.quiet))
	if argv == nil && ref == "" {
		argv = p.Sandbox.Command
	}
	for flag, size := range map[string]struct {
		text string
		to   *int64
	}{"--memory": {f.memory, &cfg.Memory}, "--disk": {f.disk, &cfg.Disk}} {
		if size.text == "" {
			continue
		}
		if *size.to, err = policies.ParseSize(size.text); err != nil {
			return cfg, nil, &usageError{err: fmt.Errorf("%s %q: %w", flag, size.text, err), help: "msb run --help"}
		}
		if *size.to < smallestSize {
			return cfg, nil, &usageError{err: fmt.Errorf("%s %s: that is %d bytes; write %sM for so many MiB, or G", flag, size.text, *size.to, strings.TrimRight(size.text, "KMGTkmgtiIbB")), help: "msb run --help"}
		}
	}
	return cfg, argv, nil
}

// temporary reports whether a sandbox with a name is removed when its command ends.
func (f *runFlags) temporary() bool { return f.name != "" && f.removeSet && f.remove }

// smallestSize is below any memory or disk in bytes that makes sense: a smaller one lacks its unit.
const smallestSize = 64 << 10

func progressMode(quiet bool) progressbar.Style {
	switch {
	case quiet:
		return progressbar.Quiet
	case isTerminal(os.Stderr):
		return progressbar.Terminal
	}
	return progressbar.Plain
}

func (f *runFlags) loadPolicy() (*policies.Policy, error) {
	p := policies.Default()
	if f.policy != "" {
		var err error
		if p, err = sandbox.LoadPolicy(f.policy); err != nil {
			return nil, err
		}
	}
	return p, addRules(p, f.rules, "msb run --help")
}

// check refuses values that the flag package takes.
func (f *runFlags) check() error {
	switch image.Pull(f.pull) {
	case image.PullMissing, image.PullAlways, image.PullNever:
	default:
		return fmt.Errorf("--pull %q: it must be missing, always or never", f.pull)
	}
	if all := backendNames(); f.backend != "" && !slices.Contains(all, f.backend) {
		return fmt.Errorf("--vm %q: %sit must be one of %s", f.backend, didYouMean(f.backend, all), strings.Join(all, ", "))
	}
	if f.cpus < 0 || f.cpus == 0 && f.cpusSet {
		return fmt.Errorf("--cpus %d: give it at least 1", f.cpus)
	}
	if f.noNet && (f.rules.Given() || f.pcap.path != "" || f.learn != "" || f.httpProxy) {
		return errors.New("--no-net leaves nothing to allow, capture, learn from or proxy; leave it out, or --allow and its like, --pcap, --learn and --http-proxy")
	}
	if f.name == "" && len(f.labels) > 0 {
		return errors.New("--label is kept with a sandbox that has a name; give --name too, or leave it out")
	}
	if f.name != "" && f.learn != "" {
		return errors.New("--learn with --name: one that stays never ends; learn with msb review --learn from its --pcap")
	}
	if err := f.life.check(); err != nil {
		return err
	}
	return f.checkExec()
}

// checkExec refuses invalid options of a command before a machine is started for it.
func (f *runFlags) checkExec() error {
	if err := f.checkEnv(); err != nil {
		return err
	}
	var err error
	if f.keys, err = parseDetachKeys(f.detachKeys); err != nil {
		return err
	}
	switch {
	case f.workdir != "" && !path.IsAbs(f.workdir):
		return fmt.Errorf("--workdir %s: write a path that begins with \"/\", such as /%s", f.workdir, strings.TrimPrefix(path.Clean(f.workdir), "../"))
	case f.timeout < 0:
		return fmt.Errorf("--timeout %s: give it more than 0, such as 30s", f.timeout)
	case f.tty && f.stdin && !f.detach && !isTerminal(os.Stdin):
		return errNoTerminal
	}
	return nil
}

// shellQuoted is a command line that a shell takes apart into argv.
func shellQuoted(argv []string) string {
	words := make([]string, 0, len(argv))
	for _, word := range argv {
		plain := strings.Trim(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:=@%+,-") == ""
		if !plain || word == "" {
			word = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

func (f *runFlags) checkEnv() error {
	for _, e := range f.env {
		if name, _, _ := strings.Cut(e, "="); name == "" || strings.ContainsRune(e, 0) {
			return fmt.Errorf("--env %q: write NAME=VALUE, or NAME to pass it on", e)
		}
	}
	return nil
}

// splitArgs takes IMAGE and COMMAND apart: everything after "--" is the command, and so is what
// follows the image.
func splitArgs(args []string, dash int) (ref string, argv []string) {
	if dash < 0 {
		dash = len(args)
	}
	before, after := args[:dash], args[dash:]
	if len(before) > 0 {
		ref, before = before[0], before[1:]
		// Flags end at IMAGE, so a "--" after it is an argument here.
		if len(before) > 0 && before[0] == "--" {
			before = before[1:]
		}
	}
	if all := append(before[:len(before):len(before)], after...); len(all) > 0 {
		argv = all
	}
	return ref, argv
}

// noteUnset warns of each -e NAME that is not in msb's own environment, which other container tools ignore silently.
func (f *runFlags) noteUnset(ui *ui) {
	for _, e := range f.env {
		if _, ok := os.LookupEnv(e); !ok && !strings.Contains(e, "=") {
			ui.note("-e %s: there is no such variable here, and none is set in the guest; -e %s= sets an empty one", e, e)
		}
	}
}

// environ turns -e into KEY=value; a bare NAME is passed on from msb's own environment.
func (f *runFlags) environ() []string {
	var env []string
	for _, e := range slices.Concat(f.envOfFiles, f.env) {
		if strings.Contains(e, "=") {
			env = append(env, e)
			continue
		}
		if v, ok := os.LookupEnv(e); ok {
			env = append(env, e+"="+v)
		}
	}
	return env
}
