package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/sandbox"
)

// defaultName is the sandbox that is made by itself.
const defaultName = "default"

// files are those of a guest; *sandbox.Files.
type files interface {
	Open(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error)
	Stat(ctx context.Context, name string, follow bool) (agentclient.FileInfo, error)
	ReadDir(ctx context.Context, dir string) ([]agentclient.FileInfo, error)
	Mkdir(ctx context.Context, dir string, o agentclient.MkdirOptions) error
	WriteFile(ctx context.Context, name string, r io.Reader, o agentclient.WriteOptions) (agentclient.FileInfo, error)
	Remove(ctx context.Context, name string, recursive bool) error
	Rename(ctx context.Context, from, to string) error
	Symlink(ctx context.Context, target, name string) error
}

var _ files = (*sandbox.Files)(nil)

// machine is a session with a running sandbox.
type machine interface {
	Exec(ctx context.Context, o sandbox.ExecOptions) (sandbox.ExitStatus, error)
	Files() files
	// Copy copies a tree of the guest's files to a name in a directory of the guest.
	Copy(ctx context.Context, from, dir, name string) (agentclient.TreeReport, error)
	StartJob(ctx context.Context, name string, o sandbox.ExecOptions) (string, error)
	Denied() audit.DenialSummary
	Stats(ctx context.Context) (agentclient.Stats, error)
	Close() error
}

// real is a machine that is one.
type real struct{ *sandbox.Sandbox }

func (r real) Files() files { return r.Sandbox.Files() }

func (r real) Copy(ctx context.Context, from, dir, name string) (agentclient.TreeReport, error) {
	in, err := r.Sandbox.Files().Pack(ctx, from, name, false)
	if err != nil {
		return agentclient.TreeReport{}, err
	}
	report, err := r.Sandbox.Files().Unpack(ctx, dir, in, nil)
	_ = in.Close() // it was only read
	return report, err
}

func (r real) StartJob(ctx context.Context, name string, o sandbox.ExecOptions) (string, error) {
	j, err := r.Sandbox.StartJob(ctx, name, o)
	if err != nil {
		return "", err
	}
	return j.Name(), nil
}

// runner makes machines run; tests put one of their own here.
type runner interface {
	// connect opens a session with a named sandbox that runs, or gives out one that is open.
	connect(ctx context.Context, st *sandbox.Status) (machine, error)
	// start starts a named sandbox that exists.
	start(ctx context.Context, st *sandbox.Status) (machine, error)
	// stop ends one that start has started.
	stop(ctx context.Context, st *sandbox.Status) error
	// run starts one without a name.
	run(ctx context.Context, cfg sandbox.Config) (machine, error)
}

type realRunner struct {
	home    *sandbox.Home
	program string
	kept    *sessions
}

func wrap(sb *sandbox.Sandbox, err error) (machine, error) {
	if err != nil {
		return nil, err
	}
	return real{sb}, nil
}

func (r realRunner) connect(ctx context.Context, st *sandbox.Status) (machine, error) {
	if st.Started == nil {
		return wrap(r.home.Only(st.Created).Connect(ctx, st.Name))
	}
	s := r.kept.take(st.Name, *st.Started)
	if s == nil {
		sb, err := r.home.Only(st.Created).Connect(ctx, st.Name)
		if err != nil {
			return nil, err
		}
		s = r.kept.add(st.Name, *st.Started, real{sb})
	}
	return r.kept.lend(st.Name, s), nil
}

func (r realRunner) start(ctx context.Context, st *sandbox.Status) (machine, error) {
	return wrap(sandbox.StartNamed(ctx, st.Name, sandbox.StartOptions{Home: r.home.Dir(), Program: r.program, Created: st.Created}))
}

func (r realRunner) stop(ctx context.Context, st *sandbox.Status) error {
	return r.home.Only(st.Created).Stop(ctx, st.Name)
}

func (r realRunner) run(ctx context.Context, cfg sandbox.Config) (machine, error) {
	return wrap(sandbox.Start(ctx, cfg))
}

// boxes are the sandboxes of one server.
type boxes struct {
	opts          Options
	family, label string
	runner        runner

	making chan struct{} // held by the call that makes the default sandbox

	mu       sync.Mutex
	reserved int            // places of sandboxes that are not in the state directory (yet)
	starting map[string]int // starts under way, by the sandboxes' names
}

// mine are the sandboxes that were made under any version of the floor's file.
func (b *boxes) mine() ([]sandbox.Status, error) {
	all, err := b.opts.Home.List()
	if err != nil {
		return nil, err
	}
	var mine []sandbox.Status
	for i := range all {
		if strings.HasPrefix(all[i].Label, b.family) {
			mine = append(mine, all[i])
		}
	}
	return mine, nil
}

// counted are those of mine that count for the bound on sandboxes: children have a budget of their own.
func (b *boxes) counted() ([]sandbox.Status, error) {
	mine, err := b.mine()
	return slices.DeleteFunc(mine, func(st sandbox.Status) bool { return st.Parent != "" }), err
}

// own is the sandbox of that name, if this server may use it; "" and "default" are the default one. remove tells that it is
// only to be stopped or removed, which may be done with one of an older version of the floor too.
func (b *boxes) own(name string, remove bool) (*sandbox.Status, error) {
	var st *sandbox.Status
	var err error
	if name == "" || name == defaultName {
		older := name != "" && remove && b.has(name)
		if !older {
			name, st = b.byDefault()
		}
	}
	if err := sandbox.CheckName(name); err != nil {
		return nil, err
	}
	if st == nil {
		st, err = b.opts.Home.Inspect(name)
	}
	if errors.Is(err, sandbox.ErrNoSandbox) || err == nil && !strings.HasPrefix(st.Label, b.family) {
		return nil, b.noSuch(name)
	}
	if err != nil {
		return nil, err
	}
	switch {
	case remove:
	case st.Label != b.label:
		return nil, say("sandbox %s was %s; use another name, or delete it with its files (sandbox_stop, remove: true); %s", name, madeBefore, getBack)
	case longer(st.IdleStop, b.opts.IdleStop) || longer(st.Lifetime, b.opts.Lifetime):
		return nil, say("sandbox %s may run for longer than the operator allows now; remove it with sandbox_stop (remove: true) and create it again", name)
	case st.CPUs > b.opts.CPUs || st.Memory > b.opts.Memory || st.Disk > b.opts.Disk:
		return nil, say("sandbox %s is larger than the operator allows now; remove it with sandbox_stop (remove: true) and create it again", name)
	}
	return st, nil
}

// madeBefore says why a sandbox of this floor's file can't be used.
const madeBefore = "made under an older version of the operator's policy, or with other directories"

// getBack says how its files can be had.
const getBack = "for its files, the operator can restore the policy's text, or take them out with msb cp"

// has tells whether there is a sandbox of that name of any version of the floor's file.
func (b *boxes) has(name string) bool {
	st, err := b.opts.Home.Inspect(name)
	return err == nil && strings.HasPrefix(st.Label, b.family)
}

// noSuch is ErrNoSandbox with the names of those that can be used.
func (b *boxes) noSuch(name string) error {
	var names []string
	mine, err := b.mine()
	if err != nil {
		return err
	}
	for i := range mine {
		if mine[i].Label == b.label {
			names = append(names, mine[i].Name)
		}
	}
	there := "there is none yet"
	if len(names) > 0 {
		there = "there are: " + strings.Join(names, ", ")
	}
	return fmt.Errorf("%w: %s; %s; sandbox_create makes one", sandbox.ErrNoSandbox, name, there)
}

// defaultName is "default", or another where somebody else has a sandbox of that name.
func (b *boxes) defaultName() string {
	name, _ := b.byDefault()
	return name
}

// byDefault is defaultName with the sandbox of that name, nil if there is none. One that was made under another name stays
// the default when "default" is free again: it has the files.
func (b *boxes) byDefault() (string, *sandbox.Status) {
	other := defaultName + "-" + b.label[len(b.family):][:6]
	if st, err := b.opts.Home.Inspect(other); err == nil && st.Label == b.label {
		return other, st
	}
	st, err := b.opts.Home.Inspect(defaultName)
	switch {
	case errors.Is(err, sandbox.ErrNoSandbox):
		return defaultName, nil
	case err != nil || st.Label != b.label:
		return other, nil
	}
	return defaultName, st
}

// about gives a result of a call to the default sandbox a first line where that isn't "default". was is what byDefault said
// of it before the call.
func (b *boxes) about(name string, was *sandbox.Status, text string) string {
	if name == defaultName || was == nil && !b.has(name) { // nothing was made
		return text
	}
	line := "sandbox " + name + ", which is the default here"
	if older := b.older(); was == nil && len(older) > 0 {
		line = fmt.Sprintf("sandbox %s is new and empty: %s was %s, and stays as it is; "+getBack, name, strings.Join(older, ", "), madeBefore)
	}
	return line + "\n" + text
}

// older are the default sandboxes of other versions of the floor.
func (b *boxes) older() []string {
	mine, _ := b.mine() // it is only said
	var names []string
	for i := range mine {
		if name := mine[i].Name; mine[i].Label != b.label && (name == defaultName || strings.HasPrefix(name, defaultName+"-")) {
			names = append(names, name)
		}
	}
	return names
}

// errTooMany says that the bound on sandboxes is reached.
var errTooMany = errors.New("too many sandboxes")

func (b *boxes) tooMany() error {
	return fmt.Errorf("%w: at most %d at once, those of sandbox_run included; remove one with sandbox_stop (remove: true)", errTooMany, b.opts.Sandboxes)
}

// reserve takes a place for a sandbox that is being made or run without a name.
func (b *boxes) reserve() (free func(), err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	mine, err := b.counted()
	if err != nil {
		return nil, err
	}
	if len(mine)+b.reserved >= b.opts.Sandboxes {
		return nil, b.tooMany()
	}
	b.reserved++
	return func() { b.mu.Lock(); b.reserved--; b.mu.Unlock() }, nil
}

// config is the sandbox that a client asks for, at most the floor, with the volumes that it names.
func (b *boxes) config(a *machineArgs) (sandbox.Config, error) {
	cfg, err := b.opts.config(a)
	for _, text := range a.Volumes {
		v, parseErr := b.parseMount(text)
		cfg.Volumes, err = append(cfg.Volumes, v), errors.Join(err, parseErr)
	}
	cfg.OperatorVolumes = true
	return cfg, err
}

// create makes a named sandbox, and does not start it.
func (b *boxes) create(ctx context.Context, name string, a *machineArgs) error {
	cfg, err := b.config(a)
	if err != nil {
		return err
	}
	cfg.Children = b.opts.Children
	cfg.Name, cfg.Label, cfg.Disk, cfg.IdleStop = name, b.label, b.opts.Disk, b.opts.IdleStop
	if a.also != nil {
		if err := a.also(&cfg); err != nil {
			return err
		}
	}
	free, err := b.reserve()
	if err != nil {
		return err
	}
	defer free()
	if err := sandbox.Create(ctx, cfg); errors.Is(err, sandbox.ErrExists) {
		return b.taken(name)
	} else if err != nil {
		return b.opts.imageFault(cfg.Image, err)
	}
	// Another server on this state directory may have made one at the same time.
	if mine, err := b.counted(); err != nil || len(mine) > b.opts.Sandboxes {
		return errors.Join(err, b.tooMany(), b.removeOwn(context.WithoutCancel(ctx), name))
	}
	return nil
}

// taken is ErrExists with what can be done about it.
func (b *boxes) taken(name string) error {
	if st, err := b.opts.Home.Inspect(name); err == nil && st.Label == b.label {
		return fmt.Errorf("%w: %s; use it as it is, choose another name, or delete it with its files (sandbox_stop, remove: true)", sandbox.ErrExists, name)
	}
	if b.has(name) {
		return fmt.Errorf("%w: %s; choose another name, or delete it with its files (sandbox_stop, remove: true)", sandbox.ErrExists, name)
	}
	return fmt.Errorf("%w: %s, and is not yours; choose another name", sandbox.ErrExists, name)
}

// removeOwn removes a sandbox that this server has just made.
func (b *boxes) removeOwn(ctx context.Context, name string) error {
	st, err := b.own(name, true)
	if err != nil {
		return err
	}
	return b.only(st).Remove(ctx, st.Name)
}

// discard stops and removes a sandbox that this server has just made.
func (b *boxes) discard(ctx context.Context, name string) error {
	st, err := b.own(name, true)
	if err != nil {
		return err
	}
	if err := b.runner.stop(ctx, st); err != nil && !errors.Is(err, sandbox.ErrNotRunning) {
		return err
	}
	return b.only(st).Remove(ctx, st.Name)
}

// createDefault makes the default sandbox. Clients call several tools at once: one of the calls makes it, and the others
// take no place meanwhile.
func (b *boxes) createDefault(ctx context.Context, name string) error {
	select {
	case b.making <- struct{}{}:
		defer func() { <-b.making }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if _, err := b.own(name, false); !errors.Is(err, sandbox.ErrNoSandbox) {
		return err
	}
	err := b.create(ctx, name, &machineArgs{})
	if again := b.defaultName(); errors.Is(err, sandbox.ErrExists) && again != name { // one of another policy did
		err = b.create(ctx, again, &machineArgs{})
	}
	if errors.Is(err, sandbox.ErrExists) && b.has(b.defaultName()) { // another server made it
		err = nil
	}
	return err
}

// longer reports whether a time is beyond a bound; 0 is none, of both.
func longer(have, most time.Duration) bool { return most > 0 && (have == 0 || have > most) }

// only is the state directory for one sandbox: another that has its name since may be anybody's.
func (b *boxes) only(st *sandbox.Status) *sandbox.Home { return b.opts.Home.Only(st.Created) }

// start starts a sandbox that exists. Those that run count again: there may be more of them than the operator allows now.
func (b *boxes) start(ctx context.Context, st *sandbox.Status) (machine, error) {
	if st.Parent == "" {
		if err := b.mayStart(st.Name); err != nil {
			return nil, err
		}
		defer b.started(st.Name)
	}
	p, err := b.only(st).Policy(st.Name)
	if err == nil {
		err = mayRead(p)
	}
	if err != nil {
		return nil, err
	}
	m, err := b.runner.start(ctx, st)
	if err != nil {
		return nil, unusable(err)
	}
	// Another server on this state directory may have started one at the same time.
	if n, err := b.othersRun(st.Name); st.Parent == "" && (err != nil || n >= b.opts.Sandboxes) {
		return nil, errors.Join(err, b.tooMany(), m.Close(), b.runner.stop(context.WithoutCancel(ctx), st))
	}
	return m, nil
}

// mayStart counts a sandbox as running from now on until started is called, or says why it can't run.
func (b *boxes) mayStart(name string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, err := b.othersRun(name)
	if err != nil {
		return err
	}
	for other := range b.starting {
		if other != name {
			n++
		}
	}
	if n >= b.opts.Sandboxes {
		return b.tooMany()
	}
	if b.starting == nil {
		b.starting = map[string]int{}
	}
	b.starting[name]++
	return nil
}

func (b *boxes) started(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.starting[name]--; b.starting[name] == 0 {
		delete(b.starting, name)
	}
}

// othersRun is how many sandboxes beside that one run.
func (b *boxes) othersRun(name string) (n int, err error) {
	mine, err := b.counted()
	for i := range mine {
		if mine[i].Running && mine[i].Name != name {
			n++
		}
	}
	return n, err
}

// startingPoll is how often a sandbox that another process starts is looked at.
const startingPoll = 50 * time.Millisecond

// use opens a session with a sandbox of this server. One that is stopped is started, and the default one is made.
func (b *boxes) use(ctx context.Context, name string) (machine, *sandbox.Status, error) {
	m, st, err := b.open(ctx, name)
	if err != nil {
		return nil, nil, startFault{err}
	}
	return m, st, nil
}

func (b *boxes) open(ctx context.Context, name string) (machine, *sandbox.Status, error) {
	st, err := b.own(name, false)
	if byDefault := b.defaultName(); errors.Is(err, sandbox.ErrNoSandbox) && (name == "" || name == defaultName || name == byDefault) {
		if err := b.createDefault(ctx, byDefault); err != nil {
			return nil, nil, err
		}
		st, err = b.own("", false)
	}
	if err != nil {
		return nil, nil, err
	}
	for {
		m, err := b.runner.connect(ctx, st)
		if errors.Is(err, sandbox.ErrNotRunning) {
			m, err = b.start(ctx, st)
		}
		if !errors.Is(err, sandbox.ErrRunning) {
			return m, st, err
		}
		select { // another call or server starts it
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		case <-time.After(startingPoll):
		}
	}
}

// useWithin is use for a program that has this long: a sandbox that is up has to answer in that time. One that starts may
// take longer.
func (b *boxes) useWithin(ctx context.Context, name string, limit time.Duration) (machine, *sandbox.Status, error) {
	st, err := b.own(name, false)
	if err != nil || !st.Running || st.Info == nil {
		return b.use(ctx, name)
	}
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	m, used, err := b.use(within, name)
	if err != nil && within.Err() != nil && ctx.Err() == nil {
		err = say("sandbox %s runs and did not answer within %s, the timeout; call again with a longer one, or stop it with sandbox_stop", st.Name, limit)
	}
	return m, used, err
}

// with calls do with a session of a sandbox, which is started or made if need be.
func (b *boxes) with(ctx context.Context, name string, do func(machine) (string, error)) (string, error) {
	m, _, err := b.use(ctx, name)
	if err != nil {
		return "", err
	}
	defer func() { _ = m.Close() }() // the session's
	return do(m)
}

// onPath decodes the arguments of a tool about files, whose paths are at paths and whose sandbox is at name, and calls do
// with the files of that sandbox.
func (b *boxes) onPath(ctx context.Context, raw json.RawMessage, a any, name *string, do func(files) (string, error), paths ...*string) (string, error) {
	if err := decode(raw, a); err != nil {
		return "", err
	}
	for _, p := range paths {
		if err := guestPath(*p); err != nil {
			return "", err
		}
	}
	return b.with(ctx, *name, func(m machine) (string, error) { return do(m.Files()) })
}
