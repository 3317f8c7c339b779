//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/msb-project/msb/internal/vm/vmtest/emuhost"
)

// Where things are in the emulated host, and how long one job may take there.
const (
	innerSelf  = "/opt/bench/bench-boot" // guests see its directory
	innerMsb   = "/usr/bin/msb"
	innerPeer  = "/opt/microsandbox"
	innerState = "/tmp/bench"

	// A sound cold start takes some 15 s of an idle machine's clock, the first a minute, the round trips a few and a round
	// of work one or two; on a busy machine it is several times as long. A host that gives no answer for longer than this
	// is frozen, if package emuhost hasn't found that before, and another one is booted.
	runTimeout  = 5 * time.Minute
	execTimeout = 15 * time.Minute
	workTimeout = 10 * time.Minute
	maxHosts    = 12
	maxFrozen   = 4 // hosts that freeze in one job, until it is given up
)

// answerMark begins the one line of a job's output that is for this program.
const answerMark = "bench-boot figures: "

// measureInner boots the emulated host and has it measure both sides in turns.
func measureInner(ctx context.Context, o *options) (all values, err error) {
	scope, err := newScope(ctx)
	if err != nil {
		return nil, err
	}
	defer scope.end(&err)
	files, err := innerFiles(scope, o)
	if err != nil {
		return nil, err
	}
	in := &inside{scope: scope, files: files, options: o}
	all = values{}
	givenUp := map[string]bool{}
	for _, job := range in.jobs() {
		if givenUp[job] {
			continue
		}
		if err := in.both(ctx, job, all); err == nil {
			progress("done: %s", job)
		} else if givenUp[job] = errors.Is(err, errNoHost); givenUp[job] {
			progress("%s is given up: %v", job, err)
		} else {
			return nil, err
		}
	}
	if len(all) == 0 {
		return nil, errNoHost
	}
	return all, nil
}

// jobs are those that both sides do in turns.
func (in *inside) jobs() []string {
	o := in.options
	work := slices.Repeat([]string{jobWork, jobDisk}, o.workRuns)
	if o.only == onlyWork {
		progress("libkrun in the emulated host: %d rounds of work", o.workRuns)
		return work
	}
	progress("libkrun in the emulated host: tools alone, %d round trips, %d cold starts, %d rounds of work", in.execs(), o.innerRuns, o.workRuns)
	runs := slices.Repeat([]string{jobRun, jobCopy}, o.innerRuns)
	return slices.Concat([]string{jobProcess, jobExec}, runs, []string{jobIdle}, work)
}

// innerFiles says what the emulated host holds beside its own.
func innerFiles(t testing.TB, o *options) (map[string]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	files := emuhost.WithQEMU(t, map[string]string{innerSelf: self, innerMsb: o.msb})
	if o.peer == "" {
		return files, nil
	}
	libs, err := filepath.Glob(filepath.Join(o.peer, "lib", "libkrunfw.so.*"))
	if err != nil || len(libs) == 0 {
		return nil, fmt.Errorf("no libkrunfw under %s/lib: run scripts/bench-boot, which fetches microsandbox", o.peer)
	}
	files[innerPeer+"/bin/msb"] = filepath.Join(o.peer, "bin", "msb")
	for _, lib := range libs {
		files[innerPeer+"/lib/"+filepath.Base(lib)] = lib
	}
	return files, nil
}

// inside asks this program's copy in the emulated host.
type inside struct {
	scope   *scope
	files   map[string]string
	host    *emuhost.Host // nil before the first and after a frozen one
	hosts   int
	options *options
}

// boot boots a host and fills its caches with a run of each side.
func (in *inside) boot(ctx context.Context) error {
	for in.host == nil {
		if in.hosts++; in.hosts > maxHosts {
			return errNoHost
		}
		progress("booting emulated host %d", in.hosts)
		in.host = emuhost.Start(in.scope, in.files)
		for _, side := range in.sides() {
			if in.host == nil {
				break
			}
			if _, err := in.ask(ctx, jobFill, side); err != nil && !errors.Is(err, errFrozen) {
				return err
			}
		}
	}
	return nil
}

// sides are the prefixes of the series of msb and of its peer, if there is one.
func (in *inside) sides() []string {
	if in.options.peer == "" {
		return []string{""}
	}
	return []string{"", peerPrefix}
}

// errNoHost says that no further host is tried for a job.
var errNoHost = fmt.Errorf("%d emulated hosts in one job, or %d in all, gave no answer", maxFrozen, maxHosts)

// errFrozen says that the emulated host gave no answer; there is none any more then.
var errFrozen = errors.New("the emulated host gave no answer")

func (in *inside) execs() int { return max(1, in.options.execs/3) }

// both does a job for msb and then for its peer, if there is one. What a frozen host was asked is asked again
// of the next one; its clock does not differ.
func (in *inside) both(ctx context.Context, job string, all values) error {
	for _, side := range in.sides() {
		if side == peerPrefix && (job == jobCopy || job == jobIdle || job == jobDisk) {
			continue
		}
		f, err := in.done(ctx, job, side)
		if err != nil {
			return err
		}
		all.merge(f)
	}
	return nil
}

func (in *inside) done(ctx context.Context, job, side string) (values, error) {
	for range maxFrozen {
		if err := in.boot(ctx); err != nil {
			return nil, err
		}
		start := time.Now()
		f, err := in.ask(ctx, job, side)
		if errors.Is(err, errFrozen) {
			continue
		}
		// The emulated host's clock counts instructions; what they cost here,
		// TLB flushes and world switches included, shows on this machine's.
		if err == nil && job == jobRun && f.spread(side+seriesBroken).Max == 0 {
			f.took(side+seriesWall, time.Since(start))
		}
		return f, err
	}
	return nil, errNoHost
}

func (in *inside) ask(ctx context.Context, job, side string) (values, error) {
	limit := runTimeout
	switch job {
	case jobExec:
		limit = execTimeout
	case jobWork, jobDisk:
		limit = workTimeout
	}
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	argv := []string{innerSelf, "-job", job, "-msb", innerMsb, "-execs", fmt.Sprint(in.execs())}
	if side == peerPrefix {
		argv = append(argv, "-microsandbox", innerPeer)
	}
	out, exit, err := in.host.Try(bounded, argv...)
	if err != nil && ctx.Err() == nil && (bounded.Err() != nil || errors.Is(err, emuhost.ErrFrozen)) {
		progress("no answer: %v", err)
		_ = in.host.End() // the scope's end says what is wrong with it
		in.host = nil
		return nil, errFrozen
	}
	_, line, found := strings.Cut(out, answerMark)
	if err != nil || exit != 0 || !found {
		return nil, fmt.Errorf("%s: exit code %d (%w):\n%s", strings.Join(argv, " "), exit, orUnexpected(err), out)
	}
	line, _, _ = strings.Cut(line, "\n")
	var f values
	return f, json.Unmarshal([]byte(line), &f)
}

// The jobs in the emulated host, each for one side.
const (
	jobFill    = "fill"    // the first cold start in a host, which makes what is cached
	jobRun     = "run"     // one cold start
	jobProcess = "process" // the tool's own start
	jobExec    = "exec"    // round trips in one sandbox
	jobWork    = "work"    // one round of copies and of files in a host directory, in one sandbox
	jobDisk    = "disk"    // the same files on the guest's own disk: msb alone
	jobCopy    = "copy"    // one start as a copy, with QEMU on KVM: msb alone
	jobIdle    = "idle"    // the memory of such copies beside each other: msb alone
)

// side is msb or its peer.
type side interface {
	runOnce(context.Context, values) error
	process(context.Context, values) error
	execute(ctx context.Context, n int, f values) error
	work(context.Context, values) error
}

// serveJob is this program inside the emulated host.
func serveJob(ctx context.Context, o *options) error {
	own := &ours{program: o.msb, home: filepath.Join(innerState, "msb"), backend: "krun"}
	var s side = own
	program, prefix := o.msb, ""
	if o.peer != "" {
		program, prefix = filepath.Join(o.peer, "bin", "msb"), peerPrefix
		p, err := preparePeer(program, filepath.Join(innerState, "microsandbox"))
		if err != nil {
			return err
		}
		s = p
	}
	measure, extra := s.runOnce, time.Duration(0)
	switch o.job {
	case jobFill:
		extra = fillExtra
	case jobRun:
	case jobProcess:
		measure = s.process
	case jobExec:
		extra = time.Duration(o.execs) * perExec
		measure = func(ctx context.Context, f values) error { return s.execute(ctx, o.execs, f) }
	case jobWork:
		measure, extra = s.work, perWork
	case jobDisk:
		measure, extra = own.disk, perWork
	case jobCopy, jobIdle:
		c := &copies{ours{program: o.msb, home: filepath.Join(innerState, "copies"), backend: "qemu"}}
		if measure, extra = c.runOnce, copyExtra; o.job == jobIdle {
			measure, extra = c.idle, idleExtra
		}
	default:
		return fmt.Errorf("no job %q", o.job)
	}
	f := values{}
	if err := patiently(ctx, f, prefix+seriesBroken, program, extra, measure); err != nil {
		return err
	}
	raw, err := json.Marshal(f)
	fmt.Println(answerMark + string(raw))
	return err
}

// QEMU 7.2 delivers an interrupt to a nested guest twice now and then: its
// virtual CPU then spins on a lock that it holds itself, or the guest crashes,
// whoever's it is. Such an attempt is given up, counted and made again. A sound
// boot takes under 10 s of the host's clock, and 18 where nothing is cached.
const (
	stallAfter  = 15 * time.Second
	maxAttempts = 10
	fillExtra   = 45 * time.Second // that the first start may take on top of a boot
	perExec     = 2 * time.Second  // that a round trip may take on top of a boot
	perWork     = 1 * time.Minute  // that a round of work may
	copyExtra   = 90 * time.Second // that saving a machine may, and reading it for the first time
	idleExtra   = 2 * time.Minute  // that some copies may
)

// patiently measures until an attempt is sound.
func patiently(ctx context.Context, f values, broken, program string, extra time.Duration, measure func(context.Context, values) error) error {
	for i := 0; ; i++ {
		got := values{}
		bounded, cancel := context.WithTimeout(ctx, stallAfter+extra)
		err := measure(bounded, got)
		cancel()
		if err == nil {
			f.merge(got)
			f.add(broken, float64(i))
			return nil
		}
		if ctx.Err() != nil || i+1 == maxAttempts {
			return err
		}
		progress("attempt %d: %v", i+1, err)
		if err := endAll(program); err != nil {
			return err
		}
	}
}

// endAll ends what a broken attempt left: its spinning guest would slow the
// next one down. The emulated host has no other processes of that program.
func endAll(program string) error {
	for range 100 {
		list, err := processes()
		if err != nil {
			return err
		}
		alive := 0
		for _, p := range list {
			if len(p.argv) == 0 || p.argv[0] != program {
				continue
			}
			alive++
			if own, err := os.FindProcess(p.pid); err == nil {
				_ = own.Kill() // it may have ended since
			}
		}
		if alive == 0 {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return fmt.Errorf("processes of %s don't end", program)
}
