package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/image"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox"
)

// runFlags is the command line of `msb run`.
type runFlags struct {
	policy, audit, learn          string
	rules                         policies.Flags
	backend, memory, disk         string
	cpus                          int
	cpusSet                       bool
	env, envOfFiles, labels       []string
	workdir, user, hostname, pull string
	timeout                       time.Duration
	floor                         string
	httpProxy                     bool
	stdin, tty, remove, noNet     bool
	cold                          bool
	quiet                         bool
	pcap                          pcapFlags
	name                          string
	detach, trust                 bool
	entrypoint                    entrypoint
	removeSet                     bool // --rm was given
	volumes, hide, tmpfs, ports   []string
	readOnly                      bool
	hideCredentials               bool
	job                           string
	restart, detachKeys           string
	life                          lifeFlags
	caches                        []string
	keys                          []byte // of detachKeys
	ulimits                       []agentclient.Rlimit
	plain                         bool // the command is all: no entrypoint of the image's
	copies                        []string
	copiesIn                      []copyIn // of copies
}

func newRunCommand(ui *ui) *cobra.Command {
	var f runFlags
	c := &cobra.Command{
		Use:   "run [flags] [IMAGE] [-- COMMAND [ARG...]]",
		Short: "Run a command in a new microVM behind the gateway",
		Long: `Boots a microVM, runs the command in it, and removes everything when it ends.
Without a policy nothing can be reached from inside. IMAGE is an OCI reference,
oci:DIR, docker-archive:FILE, dir:PATH or builtin; a command needs no "--" after
an IMAGE. With --name the sandbox stays when the command ends, with its disk and
the variables of -e: msb start, exec, stop, ls and rm are for those. The command,
-w and -u are for this once. With -d msb ends once the command runs: the sandbox
runs on, also when the command has ended, until msb stop or msb rm --force, under a
name of msb's choice if it has none. msb logs NAME shows the command's output. With
--rm a sandbox of -d or --name is removed when its command ends.

` + exitHelp,
		Example: `  msb run -- uname -a
  msb run -it alpine:3.20 sh
  msb run --policy policy.toml
  msb run --allow pypi.org:443 --allow files.pythonhosted.org:443 python:3.12 pip download requests
  msb run -v .:/work:rw -w /work python:3.12 python app.py
  msb run -d --name web python:3.12 python -m http.server
  echo 'print(6*7)' | msb run -i --no-net python:3.12 python -`,
		RunE: func(c *cobra.Command, args []string) error {
			ui.quiet, f.cpusSet, f.removeSet = f.quiet, c.Flags().Changed("cpus"), c.Flags().Changed("rm")
			return runSandbox(c.Context(), ui, &f, args, c.ArgsLenAtDash())
		},
	}
	f.register(c)
	return c
}

func (f *runFlags) register(c *cobra.Command) {
	fl := c.Flags()
	fl.SetInterspersed(false) // what follows IMAGE is the command's own
	f.registerMachine(fl)
	f.registerExec(fl)
	fl.BoolVar(&f.remove, "rm", true, "remove the sandbox when its command ends, also with -d and --name, which keep it else; --rm=false keeps logs and disk of one without a name (msb ls --kept)")
	fl.StringVar(&f.learn, "learn", "", "write the smallest policy that allows what was seen to this `file`; use it with mode = \"report\"")
	fl.StringArrayVar(&f.copies, "copy", nil, "copy a file or directory of this machine into the guest before the command runs, as msb cp does: `HOST:GUEST` (repeatable)")
	fl.Var(&f.entrypoint, "entrypoint", "run this `program` in place of the image's entrypoint, with COMMAND as its arguments; empty: COMMAND alone")
	fl.StringVar(&f.name, "name", "", "make a sandbox of this `name`, which stays")
	fl.BoolVarP(&f.detach, "detach", "d", false, "leave the sandbox and its command running, and print the name; msb logs NAME shows the output")
}

// registerMachine adds what a sandbox is made of.
func (f *runFlags) registerMachine(fl *pflag.FlagSet) {
	fl.StringVar(&f.policy, "policy", "", "policy `file`; a change while running takes effect at once")
	fl.StringVar(&f.floor, "floor", "", "an operator's policy `file`, which --policy and the flags for rules can't loosen")
	trustFlag(fl, &f.trust)
	ruleFlags(fl, &f.rules)
	fl.StringVar(&f.backend, "vm", "auto", "`backend`: auto, krun or qemu")
	fl.BoolVar(&f.cold, "cold", false, "boot the guest; without it QEMU starts a copy of a guest that has booted before (docs/warm-starts.md)")
	fl.StringVar(&f.hostname, "hostname", "", "host `name` of the guest")
	fl.IntVar(&f.cpus, "cpus", 0, "`number` of virtual CPUs (default 1)")
	fl.StringVarP(&f.memory, "memory", "m", "", "`size` of the memory, such as 512M or 2G (default 512M)")
	fl.StringVar(&f.disk, "disk", "", "writable layer on a sparse disk of this `size`, such as 10G (default: in the guest's memory; 10G for one with a name)")
	fl.StringArrayVarP(&f.ports, "publish", "p", nil, "let this machine reach a port of the guest: `[ADDRESS:]HOSTPORT:PORT[/udp]` on 127.0.0.1 and ::1 unless ADDRESS says otherwise, or PORT for any of this machine's (repeatable)")
	fl.StringArrayVarP(&f.volumes, "volume", "v", nil, "let the guest see a directory of this machine, `HOST:GUEST[:ro|rw|cow]`, read-only unless rw (with cow the guest's changes stay in the sandbox, where msb diff and msb apply have them if it has a name, and go with it); or a volume, NAME:GUEST[:ro] (repeatable)")
	fl.StringSliceVar(&f.caches, "cache", nil, "begin with what was committed of these `tools`' caches (msb cache commit), separated by commas: "+strings.Join(sandbox.CacheTools(), ", "))
	fl.StringArrayVar(&f.hide, "hide", nil, "hide files from the guest whose name, or path in a -v directory, matches this `pattern`, such as .env or .git/config (repeatable)")
	fl.BoolVar(&f.hideCredentials, "hide-credentials", false, "hide what looks like credentials in the -v directories: .env, private keys, those of clouds and registries")
	fl.StringArrayVar(&f.tmpfs, "tmpfs", nil, "an empty file system in the guest's memory, new at each start: `PATH[:size=64M,mode=1777,exec]` (repeatable)")
	fl.BoolVar(&f.readOnly, "read-only", false, "make the guest's root read-only; --tmpfs and -v HOST:GUEST:rw are what can be written to")
	fl.StringVar(&f.restart, "restart", "no", "`when` to run the command of run -d again once it has ended: no, on-failure[:N] or always")
	f.life.register(fl)
	fl.BoolVar(&f.noNet, "no-net", false, "no network device at all")
	fl.BoolVar(&f.httpProxy, "http-proxy", false, "set HTTP_PROXY for clients that want a proxy; nothing else changes")
	fl.StringVar(&f.pull, "pull", string(image.PullMissing), "`when` to ask the registry: missing, always or never")
	fl.StringVar(&f.audit, "audit", "", "write every verdict to this `file`, a JSON object a line")
	fl.StringArrayVarP(&f.labels, "label", "l", nil, "keep a label `KEY=VALUE` with a sandbox that has a name, for msb ls --filter (repeatable)")
	fl.Bool("init", false, "for docker's sake: each guest has an init that passes signals on and reaps processes, with and without this")
	f.pcap.register(fl)
}

// registerWho adds who runs a command, where, and with which variables.
func (f *runFlags) registerWho(fl *pflag.FlagSet) {
	fl.StringArrayVarP(&f.env, "env", "e", nil, "set `NAME=VALUE`, or pass NAME on (repeatable)")
	env := fl.Lookup("env")
	env.Value, env.DefValue = variables{env.Value}, "" // pflag would print the empty list of a type that it doesn't know
	fl.Var(envFiles{&f.envOfFiles}, "env-file", "set the variables of a `file`, NAME=VALUE on each line; -e wins over it (repeatable)")
	fl.StringVarP(&f.workdir, "workdir", "w", "", "working `directory` in the guest; msb run makes it, for msb exec it must be there")
	fl.StringVarP(&f.user, "user", "u", "", "`user` in the guest: name, uid, name:group or uid:gid")
}

// registerExec adds what is of one command.
func (f *runFlags) registerExec(fl *pflag.FlagSet) {
	f.registerWho(fl)
	f.registerBounds(fl)
	fl.BoolVarP(&f.stdin, "interactive", "i", false, "pass standard input on")
	fl.BoolVarP(&f.tty, "tty", "t", false, "give the command a terminal")
	fl.StringVar(&f.detachKeys, "detach-keys", "", detachKeysHelp)
}

// registerBounds adds what bounds one command.
func (f *runFlags) registerBounds(fl *pflag.FlagSet) {
	fl.DurationVar(&f.timeout, "timeout", 0, "end the command after this long, such as 30s; exit code 124")
	fl.Var(ulimits{&f.ulimits}, "ulimit", "give the command a resource limit `NAME=SOFT[:HARD]`, such as nofile=1024:4096; -1 is none (repeatable)")
	fl.BoolVarP(&f.quiet, "quiet", "q", false, "print nothing but the command's output and errors")
}

func runSandbox(ctx context.Context, ui *ui, f *runFlags, args []string, dash int) error {
	if f.detach && f.name == "" {
		f.name = anyName()
	}
	f.noteUnset(ui)
	cfg, argv, err := f.config(ui, args, dash)
	if err != nil {
		return err
	}
	if f.detachKeys != "" && (f.name == "" || f.temporary()) {
		return &usageError{err: errors.New("--detach-keys: the sandbox ends with msb, so that nothing can be left running; give --name without --rm, or leave it out"), help: "msb run --help"}
	}
	if !f.detach && !cfg.Restart.None() {
		return &usageError{err: errRestartAttached, help: "msb run --help"}
	}
	if f.detach {
		return untilStarted(ctx, ui, func(ctx context.Context) error { return runDetached(ctx, ui, f, cfg, argv) })
	}
	// Signals go to the guest here: if they cancelled msb, the command could not handle them.
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	sig := catchInterrupts(cancel)
	defer sig.stop()
	var sb *sandbox.Sandbox
	err = approved(ctx, ui, func() (err error) { sb, err = sandbox.Start(ctx, cfg); return err })
	if err != nil {
		return makeError(ctx, ui, hintAtCommand(err, cfg.Image))
	}
	if err := f.prepared(ctx, ui, sb); err != nil {
		return makeError(ctx, ui, err)
	}
	if reports(&cfg) {
		ui.note("report mode: what the policy would deny is let through, and logged as would_deny")
	}
	stop := onSwitch(func(on bool) { ui.switched(sb.SwitchCapture(on), on) })
	defer stop()
	for _, w := range sb.Info().Warnings {
		ui.note("%s", w)
	}
	code, err := execIn(ctx, ui, sb, f, argv, sig)
	if errors.Is(err, errDetached) {
		noteLeft(ui, f.name)
		return sb.Close()
	}
	err = errors.Join(err, sb.Stop(context.WithoutCancel(ctx)))
	if !ui.quiet {
		denied := sb.Denied()
		noteDenials(ui, &denied, &cfg)
	}
	if f.name != "" && !f.temporary() {
		ui.note("%s stays; `msb start %s` starts it again, `msb rm %s` removes it", f.name, f.name, f.name)
	}
	if cfg.Keep {
		ui.note("kept in %s; `msb rm %s` removes it", sb.KeptDir(), filepath.Base(sb.KeptDir()))
	}
	if err != nil {
		return err
	}
	if code != 0 {
		return exitCode(code)
	}
	return nil
}

// errRestartAttached refuses --restart for a command that ends its sandbox.
var errRestartAttached = errors.New("--restart is for a sandbox that runs on when its command has ended: give -d too, or leave it out")

// hintAtCommand adds a hint if a command was taken for an image because the "--" is missing.
func hintAtCommand(err error, image string) error {
	if sandbox.KindOf(err) != sandbox.KindImageUnknown || strings.ContainsAny(image, "/:.") {
		return err
	}
	if like := didYouMean(image, knownImages()); like != "" {
		return fmt.Errorf("%w; %s", err, strings.TrimSpace(like))
	}
	return fmt.Errorf("%w; if it is a command for the built-in image, write msb run -- %s", err, image)
}

// reports tells whether nothing that rules deny is held back.
func reports(cfg *sandbox.Config) bool {
	report := func(p *policies.Policy) bool { return p == nil || p.Egress.Mode == policies.Report }
	return report(cfg.Policy) && report(cfg.Floor)
}

// startError distinguishes a start that the user interrupted from one that failed.
func startError(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return exitCode(interruptedCode(ctx))
	}
	return err
}

// makeError is startError for creating a sandbox, with a message if the user interrupted it.
func makeError(ctx context.Context, ui *ui, err error) error {
	if err != nil && ctx.Err() != nil {
		ui.note("interrupted before the sandbox was ready; nothing of it stays")
	}
	return startError(ctx, err)
}

// untilStarted is untilSignalled for a sandbox that is made.
func untilStarted(ctx context.Context, ui *ui, do func(context.Context) error) error {
	return untilSignalled(ctx, func(ctx context.Context) error { return makeError(ctx, ui, do(ctx)) })
}

// untilSignalled calls do with a context that a signal to msb ends, and returns that signal's exit code then.
func untilSignalled(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	defer catchInterrupts(cancel).stop()
	return startError(ctx, do(ctx))
}
