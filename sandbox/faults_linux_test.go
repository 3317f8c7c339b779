package sandbox

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/msb-project/msb/capture"
	"github.com/msb-project/msb/image"
	"github.com/msb-project/msb/internal/commandfile"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// faultsEnv is what TestI13_FaultsAtEveryStepLoseNothing walks: "all", or verbs with commas; without it each verb has
// few.
const faultsEnv = "MSB_TEST_FAULTS"

const (
	// fewFaults is how many each verb has without it, or one if it starts a machine, and faultsTime about how long it takes.
	fewFaults  = 2
	faultsTime = 20 * time.Second
)

// tokensAt is where the fake guest's file begins on its disk, which nobody mounts.
const tokensAt = 1 << 20

// faultVerb is a verb that writes state, for TestI13_FaultsAtEveryStepLoseNothing. All are done with the sandbox a; b
// is another's name, and s a snapshot's or volume's.
type faultVerb struct {
	op     operation
	first  []operation // before what every verb has before it: the sandbox, which has synced the token 1
	made   string      // the Key of its create
	before []operation // behind it
	runs   bool        // the sandbox runs
	// holds reports whether it is done.
	holds func(h *Home, runs bool) bool
	// again are errors of the same operation, once it is done.
	again []error
}

// machines is how many machines the verb's test starts at least, for each fault.
func (v *faultVerb) machines() int {
	if v.runs || slices.Contains([]string{"start", "run", "prune", "commit", "volumecp"}, v.op.Verb) {
		return 1
	}
	return 0
}

func isWhole(h *Home, name string) bool { _, err := loadStored(h, name); return err == nil }

func faultVerbs() map[string]*faultVerb {
	is := func(name string, want bool) func(*Home, bool) bool {
		return func(h *Home, _ bool) bool { return isWhole(h, name) == want }
	}
	hasEnv := func(want bool) func(*Home, bool) bool {
		return func(h *Home, _ bool) bool {
			env, err := h.Env("a")
			return err == nil && slices.Contains(env, "T_X=new") == want && slices.Contains(env, "T_X=1") == false
		}
	}
	hasPort := func(want bool) func(*Home, bool) bool {
		return func(h *Home, _ bool) bool {
			ports, err := h.Ports().List("a")
			return err == nil && slices.ContainsFunc(ports, func(p Port) bool { return p.Guest == 80 }) == want
		}
	}
	hasJob := func(states ...JobState) func(*Home, bool) bool {
		return func(h *Home, _ bool) bool {
			jobs, err := h.Jobs("a")
			i := slices.IndexFunc(jobs, func(j JobStatus) bool { return j.Name == "x" })
			if i < 0 {
				return err == nil && len(states) == 0
			}
			return slices.Contains(states, jobs[i].State)
		}
	}
	hasSnapshot := func(want bool) func(*Home, bool) bool {
		return func(h *Home, _ bool) bool {
			s, err := h.Snapshots().Inspect("s")
			return (err == nil && s.Problem == "") == want && (want || errors.Is(err, ErrNoSnapshot))
		}
	}
	hasVolume := func(want bool) func(*Home, bool) bool {
		return func(h *Home, _ bool) bool {
			v, err := h.Volumes().Inspect("s")
			return (err == nil && v.Problem == "") == want && (want || errors.Is(err, ErrNoVolume))
		}
	}
	running := func(want bool) func(*Home, bool) bool {
		return func(_ *Home, runs bool) bool { return runs == want }
	}
	paused := func(want bool) func(*Home, bool) bool {
		return func(h *Home, _ bool) bool {
			st, err := h.Inspect("a")
			return err == nil && st.Paused == want
		}
	}
	hasGrant := func(want bool) func(*Home, bool) bool {
		return func(h *Home, _ bool) bool {
			set, err := h.Trust().Approved(operation{Home: h.Dir()}.beside("policy.toml"))
			return err == nil && (len(set) == 1) == want
		}
	}
	// What is approved is in the policy, and what is not is not in it.
	hasRequest := func(want RequestState) func(*Home, bool) bool {
		return func(h *Home, _ bool) bool {
			all, err := h.Requests().List("a")
			p, policyErr := h.Policy("a")
			if err != nil || policyErr != nil || len(all) == 0 || all[0].State != want {
				return false
			}
			a, err := Explain(p, "api.example.com:443", "", "")
			return err == nil && a.Denied() == (want != RequestApproved)
		}
	}
	hasImage := func(want bool) func(*Home, bool) bool {
		return func(h *Home, _ bool) bool {
			store, err := Store(h)
			if err != nil {
				return false
			}
			_, err = store.Resolve(context.Background(), loadedImage, image.Options{Pull: image.PullNever})
			return (err == nil) == want && (want || errors.Is(err, image.ErrNotCached))
		}
	}
	hasCache := func(want bool) func(*Home, bool) bool {
		return func(h *Home, _ bool) bool {
			all, err := h.Caches().List()
			return err == nil && (len(all) == 1) == want
		}
	}
	captures := func(h *Home, _ bool) bool { // it can be read as far as it was written
		f, err := os.Open(operation{Home: h.Dir()}.beside(captureName))
		if err == nil {
			_, err = capture.NewReader(f)
			_ = f.Close()
		}
		return err == nil || errors.Is(err, io.EOF)
	}
	archived := func(h *Home, _ bool) bool { // whole, or Import refuses it
		f, err := os.Open(operation{Home: h.Dir()}.beside("out.msb"))
		if err != nil {
			return false
		}
		defer func() { _ = f.Close() }()
		_, err = h.Snapshots().Import(context.Background(), f, "probe")
		return err == nil && h.Snapshots().Remove("probe") == nil
	}
	hasCommand := func(want string) func(*Home, bool) bool { // whole, or not there
		return func(h *Home, _ bool) bool {
			b, err := os.ReadFile(operation{Home: h.Dir()}.beside(commandName))
			if want == "" {
				return errors.Is(err, fs.ErrNotExist)
			}
			return err == nil && string(b) == commandfile.Begin+want
		}
	}
	hasLifetime := func(h *Home, _ bool) bool {
		s, err := h.Inspect("a")
		return err == nil && s.Lifetime == time.Hour
	}
	shot := operation{Verb: "snapshot", Name: "a", To: "s"}
	shotMemory := operation{Verb: "snapshotmemory", Name: "a", To: "s"}
	savedMemory := []operation{{Verb: "start", Name: "a"}, shotMemory, {Verb: "stop", Name: "a"}}
	restoreMemory := operation{Verb: "restore", Name: "a", To: "s"}
	ask := operation{Verb: "ask", Name: "a", Key: "api.example.com"}
	load := operation{Verb: "load", Key: archiveName}
	return map[string]*faultVerb{
		"trust":       {op: operation{Verb: "trust"}, holds: hasGrant(true)},
		"forget":      {op: operation{Verb: "forget"}, before: []operation{{Verb: "trust"}}, holds: hasGrant(false)},
		"ask":         {op: ask, holds: hasRequest(RequestPending)},
		"askrunning":  {op: ask, runs: true, holds: hasRequest(RequestPending)},
		"approve":     {op: operation{Verb: "answer", Name: "a", Key: "sandbox"}, before: []operation{ask}, runs: true, holds: hasRequest(RequestApproved), again: []error{ErrRequest}},
		"approveonce": {op: operation{Verb: "answer", Name: "a", Key: state.ForOnce}, before: []operation{ask}, holds: hasRequest(RequestApproved), again: []error{ErrRequest}},
		"deny":        {op: operation{Verb: "answer", Name: "a"}, before: []operation{ask}, holds: hasRequest(RequestDenied), again: []error{ErrRequest}},
		"pause":       {op: operation{Verb: "pause", Name: "a"}, runs: true, holds: paused(true)},
		"resume":      {op: operation{Verb: "resume", Name: "a"}, before: []operation{{Verb: "pause", Name: "a"}}, runs: true, holds: paused(false)},
		"keep":        {op: operation{Verb: "keep", Name: "a"}, runs: true, holds: is("a", true)},
		"capture":     {op: operation{Verb: "capture", Name: "a"}, made: "capture", runs: true, holds: captures},
		"captureoff":  {op: operation{Verb: "capture", Name: "a", Key: "off"}, before: []operation{{Verb: "capture", Name: "a"}}, made: "capture", runs: true, holds: captures},
		"load":        {op: load, holds: hasImage(true)},
		"rmimage":     {op: operation{Verb: "rmimage", To: loadedImage}, before: []operation{load}, holds: hasImage(false), again: []error{image.ErrNotCached}},
		"commit":      {op: operation{Verb: "commit", Name: "a", To: loadedImage}, holds: hasImage(true)},
		"import":      {op: operation{Verb: "import", Key: "s.msb", To: "s"}, first: []operation{load}, made: "image", before: []operation{{Verb: "snapshot", Name: "a", To: "s"}, {Verb: "export", Key: "s.msb", To: "s"}, {Verb: "rmsnapshot", To: "s"}}, holds: hasSnapshot(true), again: []error{ErrSnapshotExists}},
		"export":      {op: operation{Verb: "export", Key: "out.msb", To: "s"}, first: []operation{load}, made: "image", before: []operation{shot}, holds: archived},
		"mkcache":     {op: operation{Verb: "mkcache"}, holds: hasCache(true)},
		"cachecommit": {op: operation{Verb: "cachecommit", Name: "a"}, made: "cache", runs: true, holds: hasCache(true)},
		"rmcache":     {op: operation{Verb: "rmcache"}, before: []operation{{Verb: "mkcache"}}, holds: hasCache(false)},

		"create":     {op: operation{Verb: "create", Name: "b"}, holds: is("b", true), again: []error{ErrExists}},
		"run":        {op: operation{Verb: "run", Name: "b"}, holds: is("b", true), again: []error{ErrExists}},
		"clone":      {op: operation{Verb: "clone", Name: "a", To: "b"}, holds: is("b", true), again: []error{ErrExists}},
		"clonerun":   {op: operation{Verb: "clone", Name: "a", To: "b"}, runs: true, holds: is("b", true), again: []error{ErrExists}},
		"cloneshot":  {op: operation{Verb: "clonesnapshot", Key: "s", To: "b"}, before: []operation{shot}, holds: is("b", true), again: []error{ErrExists}},
		"start":      {op: operation{Verb: "start", Name: "a"}, holds: running(true), again: []error{ErrRunning}},
		"stop":       {op: operation{Verb: "stop", Name: "a"}, runs: true, holds: running(false), again: []error{ErrNotRunning}},
		"remove":     {op: operation{Verb: "remove", Name: "a"}, holds: is("a", false), again: []error{ErrNoSandbox}},
		"rename":     {op: operation{Verb: "rename", Name: "a", To: "b"}, holds: is("b", true), again: []error{ErrNoSandbox}},
		"setenv":     {op: operation{Verb: "setenv", Name: "a", Key: "X", To: "new"}, holds: hasEnv(true)},
		"unsetenv":   {op: operation{Verb: "unsetenv", Name: "a", Key: "X"}, holds: hasEnv(false)},
		"update":     {op: operation{Verb: "update", Name: "a", Key: "k", To: "v"}, holds: hasLabel},
		"lifetime":   {op: operation{Verb: "lifetime", Name: "a"}, runs: true, holds: hasLifetime},
		"addport":    {op: operation{Verb: "addport", Name: "a", Key: "80"}, runs: true, holds: hasPort(true)},
		"rmport":     {op: operation{Verb: "rmport", Name: "a", Key: "80"}, before: []operation{{Verb: "addport", Name: "a", Key: "80"}}, runs: true, holds: hasPort(false), again: []error{ErrPort}},
		"job":        {op: operation{Verb: "job", Name: "a", Job: "x"}, runs: true, holds: hasJob(JobRunning, JobLost), again: []error{ErrJobExists}},
		"kill":       {op: operation{Verb: "kill", Name: "a", Job: "x"}, before: []operation{{Verb: "job", Name: "a", Job: "x"}}, runs: true, holds: hasJob(JobKilled, JobLost), again: []error{ErrJobEnded, ErrNotRunning}},
		"rmjob":      {op: operation{Verb: "rmjob", Name: "a", Job: "x"}, before: []operation{{Verb: "job", Name: "a", Job: "x", To: "3"}}, runs: true, holds: hasJob(), again: []error{ErrNoJob}},
		"reset":      {op: operation{Verb: "reset", Name: "a"}, holds: is("a", true)},
		"snapshot":   {op: operation{Verb: "snapshot", Name: "a", To: "s"}, holds: hasSnapshot(true), again: []error{ErrSnapshotExists}},
		"shotrun":    {op: shot, runs: true, holds: hasSnapshot(true), again: []error{ErrSnapshotExists}},
		"restore":    {op: operation{Verb: "restore", Name: "a", To: "s"}, before: []operation{{Verb: "snapshot", Name: "a", To: "s"}}, holds: hasSnapshot(true)},
		"rmsnapshot": {op: operation{Verb: "rmsnapshot", Name: "a", To: "s"}, before: []operation{{Verb: "snapshot", Name: "a", To: "s"}}, holds: hasSnapshot(false), again: []error{ErrNoSnapshot}},
		// A disk of another instant than the memory is an error of the machines.
		"shotmemory":    {op: shotMemory, runs: true, holds: hasSnapshot(true), again: []error{ErrSnapshotExists}},
		"restorememory": {op: restoreMemory, before: savedMemory, holds: hasSnapshot(true)},
		"resumememory":  {op: operation{Verb: "start", Name: "a"}, before: append(savedMemory, restoreMemory), holds: running(true), again: []error{ErrRunning}},

		"mkvolume":  {op: operation{Verb: "mkvolume", To: "s"}, holds: hasVolume(true), again: []error{ErrExists}},
		"rmvolume":  {op: operation{Verb: "rmvolume", To: "s"}, before: []operation{{Verb: "mkvolume", To: "s"}}, holds: hasVolume(false), again: []error{ErrNoVolume}},
		"volumecp":  {op: operation{Verb: "volumecp", To: "s"}, before: []operation{{Verb: "mkvolume", To: "s"}}, holds: hasVolume(true)},
		"install":   {op: operation{Verb: "install", Key: "new"}, holds: hasCommand("new")},
		"reinstall": {op: operation{Verb: "install", Key: "new"}, before: []operation{{Verb: "install", Key: "old"}}, holds: hasCommand("new")},
		"uninstall": {op: operation{Verb: "uninstall"}, before: []operation{{Verb: "install", Key: "old"}}, holds: hasCommand(""), again: []error{fs.ErrNotExist}},
		"prune":     {op: operation{Verb: "prune", Key: "stopped"}, holds: is("a", false)},
	}
}

func hasLabel(h *Home, _ bool) bool {
	s, err := h.Inspect("a")
	return err == nil && s.Labels["k"] == "v"
}

// staleNames makes the names of a directory that is matched old, or fails for them if age is zero.
func (m *machineTest) staleNames(h *Home, sub string, match func(string) bool, age time.Time) {
	m.t.Helper()
	names, err := os.ReadDir(filepath.Join(h.Dir(), sub))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		m.fail("%v", err)
	}
	for _, n := range names {
		switch {
		case !match(n.Name()):
		case age.IsZero():
			m.fail("%s stays in %s", n.Name(), sub)
		default:
			must(m.t, os.Chtimes(filepath.Join(h.Dir(), sub, n.Name()), age, age))
		}
	}
}

// commandName is of a command of msb install beside the home.
const commandName = "tool"

// archiveName is of an archive of loadedImage beside the home.
const archiveName = "image.tar"

func unlessNotCached(err error) error {
	if errors.Is(err, image.ErrNotCached) {
		return nil
	}
	return err
}

// TestI13_FaultsAtEveryStepLoseNothing lets a fault come at each step of each verb that writes state: the process that
// is in the step is killed, or its caller, supervisor or VMM, or the disk is full or read-only from there on. What was
// said to be done is done; the operation can be done again; what was there before is there; and nothing stays in the
// end: no process, no directory, no lock. Not parallel: it forks.
func TestI13_FaultsAtEveryStepLoseNothing(t *testing.T) {
	m := &machineTest{t: t, mark: "MSB_TEST_RUN=" + strconv.FormatInt(time.Now().UnixNano(), 10), root: t.TempDir()}
	name, value, _ := strings.Cut(m.mark, "=")
	t.Setenv(name, value)
	t.Cleanup(func() {
		for _, pid := range m.processes() {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	must(t, os.WriteFile(filepath.Join(m.root, "file"), nil, 0o600))
	all := faultVerbs()
	wanted, began := os.Getenv(faultsEnv), time.Now()
	verbs := slices.Sorted(maps.Keys(all))
	slices.SortStableFunc(verbs, func(a, b string) int { return cmp.Compare(all[a].machines(), all[b].machines()) })
	if realMachines && wanted == "" {
		t.Skip("with real machines it takes minutes: " + faultsEnv + "=all asks for it")
	}
	for _, verb := range verbs {
		if realMachines && all[verb].made == "image" {
			continue // which has no shell
		}
		if wanted != "" && wanted != "all" && !slices.Contains(strings.Split(wanted, ","), verb) {
			continue
		}
		if wanted == "" && time.Since(began) > faultsTime {
			t.Logf("%s and what follows it: no time", verb)
			break
		}
		t.Run(verb, func(t *testing.T) {
			m.t = t
			m.walkFaults(all[verb], wanted != "")
		})
	}
}

// walkFaults does an operation with each kind of fault at each of its steps, or at three of them.
func (m *machineTest) walkFaults(v *faultVerb, every bool) {
	h := newHome(m.t)
	dir, err := filepath.EvalSymlinks(h.Dir())
	must(m.t, err)
	f := &faults{home: filepath.Dir(dir), mark: m.mark} // with what is named beside it
	must(m.t, os.WriteFile(operation{Home: dir}.beside(archiveName), anImageArchive(m.t, loadedImage, &image.Config{Cmd: []string{"run"}}).Bytes(), 0o600))
	m.homes, m.done = []*Home{h}, []string{v.op.Verb}
	steps := m.faultRun(h, f, v, "", 0)
	if realMachines { // one kill of each, where the most has been begun
		kinds := []string{killCaller, killSupervisor, killVMM}[:map[bool]int{true: 3, false: 1}[v.machines() > 0]]
		for _, kind := range kinds {
			m.faultRun(h, f, v, kind, 1+len(steps)*2/3)
		}
		m.t.Logf("%d steps, %d kills", len(steps), len(kinds))
		return
	}
	kinds := []string{killSelf, diskFull, diskReadOnly}
	byRole := map[string]string{"supervisor": killSupervisor, "VMM": killVMM, "caller": killCaller}
	for _, step := range steps {
		role, _, _ := strings.Cut(step, ":")
		if kind := byRole[role]; role != "caller" && !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind, killCaller)
		}
	}
	slices.Sort(kinds)
	kinds = slices.Compact(kinds)
	if v.runs { // it has them from before
		kinds = []string{killSelf, killCaller, killSupervisor, killVMM, diskFull, diskReadOnly}
	}
	total := 0
	for i, kind := range kinds {
		for n := 1; n <= len(steps) && !m.t.Failed(); n++ {
			// Few faults at steps that differ from verb to verb: kinds and steps in turn.
			if few := (i+len(steps))%len(kinds) < fewFaults-v.machines() && n == 1+(i*7+len(v.op.Verb)*5)%len(steps); every || few {
				m.faultRun(h, f, v, kind, n)
				total++
			}
		}
	}
	m.t.Logf("%d steps, %d faults", len(steps), total)
}

// faultRun does one operation with one fault, and looks at what comes of it. It returns the steps of the operation.
func (m *machineTest) faultRun(h *Home, f *faults, v *faultVerb, kind string, at int) []string {
	m.t.Helper()
	ctx := m.t.Context()
	plain := func(o operation) (string, error) {
		o.Home, o.Root = h.Dir(), m.root
		return o.do(ctx, h)
	}
	prepare := slices.Concat(v.first, []operation{{Verb: "create", Name: "a", Key: v.made}, {Verb: "setenv", Name: "a", Key: "X", To: "1"}, {Verb: "create", Name: "c"}, {Verb: "setenv", Name: "c", Key: "Y", To: "2"}})
	if v.op.Verb == "prune" {
		prepare = append(prepare, operation{Verb: "start", Name: "c"})
	}
	for _, o := range prepare {
		if _, err := plain(o); err != nil {
			m.t.Fatalf("%s: %v", o, err)
		}
	}
	writeToken(m.t, h, "1")
	switch {
	case v.runs && realMachines:
		if _, err := plain(operation{Verb: "start", Name: "a"}); err != nil {
			m.t.Fatalf("start: %v", err)
		}
	case v.runs: // its processes are to ask, too
		if done, why := f.do(m.t, m.at(h, operation{Verb: "start", Name: "a"})); !done {
			m.t.Fatalf("start: %s", why)
		}
	}
	for _, o := range v.before {
		if _, err := plain(o); err != nil {
			m.t.Fatalf("%s: %v", o, err)
		}
	}
	if v.op.Verb == "restore" {
		writeToken(m.t, h, "2") // it goes
	}
	f.arm(kind, at)
	done, why := f.do(m.t, m.at(h, v.op))
	steps, hit, struck := f.disarm(m.t)
	m.done = []string{v.op.String() + " with " + kind + " at " + hit}
	if kind != "" && hit == "" && at <= len(steps) && !realMachines {
		m.fail("no fault at step %d of %q", at, steps)
	}
	if kind == "" && !done {
		m.fail("%s", why)
	}
	if (kind == diskFull || kind == diskReadOnly) && !done && why == "" {
		m.fail("it fails without a word")
	}
	runs := m.rests(h, "a")
	for end := time.Now().Add(settleTime); struck == "VMM" && (runs || m.rests(h, "b")) && time.Now().Before(end); runs = m.rests(h, "a") {
		time.Sleep(time.Millisecond) // until the supervisor has seen it
	}
	m.rests(h, "b")
	ended := struck == "supervisor" || struck == "VMM"
	holds := v.holds(h, runs)
	if done && !holds && (v.op.Verb != "start" && v.op.Verb != "pause" || !ended) {
		m.fail("it is not done, and was said to be")
	}
	if v.runs && v.op.Verb != "stop" && !runs { // as after any kill, it is started again
		if !ended && kind != diskFull && kind != diskReadOnly {
			m.fail("it runs no longer")
		}
		if _, err := plain(operation{Verb: "start", Name: "a"}); err != nil {
			m.fail("%v", err)
		}
	}
	if _, err := plain(v.op); err != nil && !slices.ContainsFunc(v.again, func(w error) bool { return isError(err, w) }) {
		m.fail("again: %v", err)
	}
	if runs := m.rests(h, "a"); !v.holds(h, runs) {
		m.fail("done once more, it is not done")
	}
	m.faultRest(h, v)
	if strings.HasSuffix(v.op.Verb, "install") {
		m.noCommands(h)
	}
	m.sweepAll(h)
	return steps
}

// isError is errors.Is, also of an error that a supervisor made and its caller knows the text of alone.
func isError(err, want error) bool {
	return errors.Is(err, want) || strings.Contains(err.Error(), want.Error())
}

func (m *machineTest) at(h *Home, o operation) operation {
	o.Home, o.Root = h.Dir(), m.root
	return o
}

// rests waits until a sandbox has come to rest, and reports whether it runs.
func (m *machineTest) rests(h *Home, name string) bool {
	if _, err := os.Lstat(namedPath(h, name)); err != nil {
		return false
	}
	return m.runs(h, name)
}

// writeToken writes the file of a's guest, which does not run.
func writeToken(t *testing.T, h *Home, token string) {
	t.Helper()
	if realMachines {
		for _, o := range []operation{{Verb: "start"}, {Verb: "token", Key: token}, {Verb: "stop"}} {
			o.Home, o.Name = h.Dir(), "a"
			_, err := o.do(t.Context(), h)
			must(t, err)
		}
		return
	}
	disk, err := os.OpenFile(namedPath(h, "a", state.UpperDisk), os.O_WRONLY, 0)
	must(t, err)
	_, err = disk.WriteAt([]byte(token+"\x00"), tokensAt)
	must(t, errors.Join(err, disk.Close()))
}

// faultRest looks for what was there before the operation: another sandbox, and the guest's file.
func (m *machineTest) faultRest(h *Home, v *faultVerb) {
	m.t.Helper()
	if env, err := h.Env("c"); err != nil || !slices.Equal(env, []string{"T_Y=2"}) {
		m.fail("another sandbox has %q, %v", env, err)
	}
	name, want := "a", "1"
	switch v.op.Verb {
	case "rename", "clone", "clonesnapshot":
		name = "b"
	case "reset":
		want = ""
	case "remove", "prune":
		return
	}
	if m.rests(h, name) {
		must(m.t, h.Stop(m.t.Context(), name))
	}
	if got, err := m.tokenOf(h, name); err != nil || got != want {
		m.fail("the disk of %s has %q, %v; want %q", name, got, err, want)
	}
	if env, err := h.Env(name); err != nil || len(env) != 1 && v.op.Verb != "unsetenv" {
		m.fail("%s has %q, %v", name, env, err)
	}
}

// noCommands removes the command of msb install, if there is one, and looks for what stays once it is a minute old.
func (m *machineTest) noCommands(h *Home) {
	m.t.Helper()
	dir := filepath.Dir(operation{Home: h.Dir()}.beside(commandName))
	left := func() []string {
		list, err := filepath.Glob(filepath.Join(dir, ".msb-install-*"))
		must(m.t, err)
		return list
	}
	old := time.Now().Add(-time.Hour)
	for _, path := range left() {
		must(m.t, os.Chtimes(path, old, old))
	}
	at := filepath.Join(dir, commandName)
	if must(m.t, commandfile.Put(at, "")); len(left()) > 0 {
		m.fail("%s stay", left())
	}
	must(m.t, commandfile.Remove(at))
}

// tokenOf reads the file of a guest, which does not run.
func (m *machineTest) tokenOf(h *Home, name string) (token string, err error) {
	if realMachines {
		for _, verb := range []string{"start", "list", "stop"} {
			out, e := operation{Verb: verb, Home: h.Dir(), Name: name}.do(m.t.Context(), h)
			token, err = token+strings.TrimSpace(out), errors.Join(err, e)
		}
		return token, err
	}
	disk, err := os.Open(namedPath(h, name, state.UpperDisk))
	if err != nil {
		return "", err
	}
	defer func() { _ = disk.Close() }()
	b := make([]byte, 8)
	_, err = disk.ReadAt(b, tokensAt)
	token, _, _ = strings.Cut(string(b), "\x00")
	return token, err
}

// sweepAll removes all sandboxes, snapshots and volumes, and looks for what stays.
func (m *machineTest) sweepAll(h *Home) {
	m.t.Helper()
	ctx := m.t.Context()
	all, err := h.List()
	for i := range all {
		if all[i].Running {
			err = errors.Join(err, h.Stop(ctx, all[i].Name))
		}
		err = errors.Join(err, h.Remove(ctx, all[i].Name))
	}
	shots, shotsErr := h.Snapshots().List()
	for i := range shots {
		err = errors.Join(err, h.Snapshots().Remove(shots[i].Name))
	}
	volumes, volumesErr := h.Volumes().List()
	for i := range volumes {
		err = errors.Join(err, h.Volumes().Remove(volumes[i].Name))
	}
	store, storeErr := Store(h)
	if storeErr == nil {
		storeErr = unlessNotCached(store.Remove(loadedImage))
	}
	if err = errors.Join(err, shotsErr, volumesErr, storeErr, h.Caches().Remove(ctx, nil, StartOptions{})); err != nil {
		m.fail("%v", err)
	}
	old := time.Now().Add(-2 * newRunGrace)
	for _, sub := range []string{state.SnapshotsDir, state.VolumesDir} {
		err := filepath.WalkDir(filepath.Join(h.Dir(), sub), func(path string, _ fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			return os.Chtimes(path, old, old)
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			m.fail("%v", err)
		}
	}
	m.staleNames(h, trustDir, newTrustFile.MatchString, old)
	m.staleNames(h, state.CachesDir, func(name string) bool { return name == state.CacheWork }, old)
	m.empty(h)
	m.staleNames(h, trustDir, newTrustFile.MatchString, time.Time{})
	m.staleNames(h, imagesDir, func(name string) bool { _, ok := image.Form(name, fs.ModeDir); return !ok }, time.Time{})
	if names, err := os.ReadDir(state.CachesPath(h.Dir())); err == nil && len(names) > 1 { // the newest, which has nothing in it, stays
		m.fail("in caches: %v", names)
	}
	for _, sub := range []string{state.SnapshotsDir, state.VolumesDir} {
		var left []string
		_ = filepath.WalkDir(filepath.Join(h.Dir(), sub), func(path string, d fs.DirEntry, err error) error { // it may not be there
			if err == nil && !d.IsDir() && path != filepath.Join(h.Dir(), state.SnapshotsDir, state.LockFile) {
				left = append(left, path)
			}
			return nil
		})
		if len(left) > 0 {
			m.fail("%q stay", left)
		}
	}
	for end := time.Now().Add(settleTime); len(m.processes()) > 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			m.fail("processes %v stay", m.processes())
			return
		}
	}
}
