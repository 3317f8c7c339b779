package sandbox

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/image"
	"github.com/msb-project/msb/image/ext4disk"
	"github.com/msb-project/msb/internal/commandfile"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/policies/grants"
	"github.com/msb-project/msb/sandbox/internal/state"
)

const (
	// operationsEnv and seedEnv repeat or lengthen TestI13_RandomOperationsLoseNothing.
	operationsEnv = "MSB_TEST_OPERATIONS"
	seedEnv       = "MSB_TEST_SEED"
	// fastOperations and fastTime bound it without them.
	fastOperations = 3000
	fastTime       = 6 * time.Second
	// realTime bounds it with real machines, which it has with operationsEnv alone.
	realTime = 15 * time.Minute
	// settleTime is what a sandbox may take to come to rest after a kill.
	settleTime = 2 * time.Minute
	// callerEnv makes the test's program do one operation.
	callerEnv = "MSB_TEST_OPERATION"
	shownOps  = 40
)

// operation is one verb on one sandbox. Home is a path, Root its image's directory.
type operation struct {
	Verb, Home, Root, Name, To, Key, Job string
	// Full: in a process whose files can't grow. Trap: in one that asks before each of faultCalls. Kill: in a process that is
	// killed after that time.
	Full bool
	Trap bool
	Kill time.Duration
}

func (o operation) String() string {
	text := strings.Join(strings.Fields(strings.Join([]string{o.Verb, filepath.Base(filepath.Dir(o.Home)), o.Name, o.To, o.Key, o.Job}, " ")), " ")
	if o.Full {
		text += " on a full disk"
	}
	if o.Kill > 0 {
		text += " killed after " + o.Kill.String()
	}
	return text
}

// do does the operation and returns what it shows.
func (o operation) do(ctx context.Context, h *Home) (string, error) {
	switch o.Verb {
	case "install":
		return "", commandfile.Put(o.beside(commandName), o.Key)
	case "uninstall":
		return "", commandfile.Remove(o.beside(commandName))
	case "create":
		return "", Create(ctx, o.config())
	case "run":
		sb, err := Start(ctx, o.config())
		if err == nil {
			err = sb.Close()
		}
		return "", err
	case "start":
		sb, err := StartNamed(ctx, o.Name, StartOptions{Home: o.Home})
		if err == nil {
			err = sb.Close()
		}
		return "", err
	case "stop":
		return "", h.Stop(ctx, o.Name)
	case "remove":
		return "", h.Remove(ctx, o.Name)
	case "rename":
		return "", h.Rename(ctx, o.Name, o.To)
	case "setenv":
		return "", h.SetEnv(ctx, o.Name, "T_"+o.Key+"="+o.To)
	case "unsetenv":
		return "", h.UnsetEnv(ctx, o.Name, "T_"+o.Key)
	case "addport":
		guest, _ := strconv.Atoi(o.Key)
		_, err := h.Ports().Add(ctx, o.Name, Port{Guest: uint16(guest)})
		return "", err
	case "rmport":
		guest, _ := strconv.Atoi(o.Key)
		_, err := h.Ports().Remove(ctx, o.Name, Port{Guest: uint16(guest)})
		return "", err
	case "clone":
		return "", h.Clone(ctx, o.Name, o.To, CloneOptions{})
	case "clonesnapshot":
		return "", h.Snapshots().Clone(ctx, o.Key, o.To, CloneOptions{})
	case "reset":
		return "", h.Reset(ctx, o.Name)
	case "update":
		return "", h.Update(ctx, o.Name, Changes{Labels: map[string]string{o.Key: o.To}})
	case "snapshot":
		_, err := h.Snapshots().Create(ctx, o.Name, SnapshotOptions{Name: o.To})
		return "", err
	case "snapshotmemory":
		_, err := h.Snapshots().Create(ctx, o.Name, SnapshotOptions{Name: o.To, Memory: true})
		return "", err
	case "restore":
		return "", h.Snapshots().Restore(ctx, o.To, o.Name)
	case "rmsnapshot":
		return "", h.Snapshots().Remove(o.To)
	case "mkvolume":
		return "", h.Volumes().Create(o.To, 64<<20)
	case "volumecp":
		sb, err := h.Volumes().Open(ctx, o.To, false, StartOptions{})
		if err != nil {
			return "", err
		}
		_, err = sb.CopyTo(ctx, o.beside(archiveName), VolumeRoot, CopyOptions{})
		return "", errors.Join(err, sb.Close())
	case "lifetime":
		lifetime := time.Hour
		return "", h.Update(ctx, o.Name, Changes{Lifetime: &lifetime})
	case "rmvolume":
		return "", h.Volumes().Remove(o.To)
	case "child":
		(&childCalls{home: h, parent: o.Name, stderr: io.Discard}).answer(ctx, []byte(o.Key), io.Discard)
		return "", nil
	case "prune":
		_, err := h.Prune(ctx, PruneOptions{Stopped: o.Key == "stopped"})
		return "", err
	case "keep":
		return "", h.Keep(ctx, o.Name)
	case "pause":
		return "", h.Pause(ctx, o.Name)
	case "resume":
		return "", h.Resume(ctx, o.Name)
	case "capture":
		return "", o.capture(ctx, h)
	case "trust":
		return "", h.Trust().Approve(o.beside("policy.toml"), grants.Set{{Kind: grants.Secret, What: "env:TOKEN", To: "example.com"}})
	case "forget":
		_, err := h.Trust().Forget(o.beside("policy.toml"))
		return "", err
	case "ask":
		_, err := h.Requests().Ask(ctx, o.Name, o.Key, 0, nil, "")
		return "", err
	case "answer":
		all, err := h.Requests().List(o.Name)
		if err == nil && len(all) > 0 {
			err = h.Requests().Answer(ctx, o.Name, RequestAnswer{ID: all[0].ID, Approve: o.Key != "", Lifetime: o.Key})
		}
		return "", err
	case "load", "export", "import":
		return "", o.file(ctx, h)
	case "rmimage":
		store, err := Store(h)
		if err == nil {
			err = store.Remove(o.To)
		}
		return "", err
	case "commit":
		_, err := h.Snapshots().Commit(ctx, o.Name, o.To, StartOptions{})
		return "", err
	case "mkcache":
		_, err := h.Caches().renew(func(dir, _ string) (*state.StoredCaches, error) {
			kept := newStoredCaches()
			kept.Tools["pip"] = state.StoredCache{Bytes: 1, Sandbox: "web"}
			return kept, ext4disk.CreateEmpty(filepath.Join(dir, state.CacheDisk), 64<<20)
		})
		return "", err
	case "cachecommit":
		_, err := h.Caches().Commit(ctx, o.Name, nil, StartOptions{})
		return "", err
	case "rmcache":
		return "", h.Caches().Remove(ctx, nil, StartOptions{})
	case "append", "sync", "list", "env", "token", "boot":
		return o.exec(ctx, h)
	case "job":
		return "", o.startJob(ctx, h)
	case "kill", "rmjob":
		j, err := h.Job(o.Name, o.Job)
		if err == nil && o.Verb == "kill" {
			if err = j.Kill(ctx, agentclient.SIGTERM); err == nil || errors.Is(err, ErrJobEnded) {
				const enough = 5 * time.Second // it waits for as long as the end can't be written
				ctx, cancel := context.WithTimeout(ctx, enough)
				defer cancel()
				_, waited := j.Wait(ctx)
				err = errors.Join(err, waited)
			}
		} else if err == nil {
			err = j.Remove(ctx)
		}
		return "", err
	}
	return "", fmt.Errorf("no verb %q", o.Verb)
}

func (o operation) config() Config {
	c := Config{Name: o.Name, Home: o.Home, Disk: 64 << 20, Policy: policies.Default(), Image: "dir:" + o.Root}
	if realMachines {
		c.Image, c.Backend = "", "qemu"
	}
	switch o.Key {
	case "cache":
		c.Caches = []string{"pip"}
	case "capture":
		c.Pcap, c.PcapOptions = o.beside(captureName), PcapOptions{Off: true}
	case "image":
		c.Image = loadedImage
	}
	return c
}

const (
	captureName = "capture.pcapng"
	loadedImage = "tools:1"
)

// beside is a file of the test beside the home.
func (o operation) beside(name string) string { return filepath.Join(filepath.Dir(o.Home), name) }

// file reads or writes a file beside the home, which its owner named.
func (o operation) file(ctx context.Context, h *Home) error {
	flags := os.O_RDONLY
	if o.Verb == "export" {
		flags = os.O_WRONLY | os.O_CREATE | os.O_TRUNC
	}
	f, err := os.OpenFile(o.beside(o.Key), flags, 0o600)
	if err != nil {
		return err
	}
	switch o.Verb {
	case "export":
		err = h.Snapshots().Export(ctx, o.To, f)
	case "import":
		_, err = h.Snapshots().Import(ctx, f, o.To)
	case "load":
		var store *image.Store
		if store, err = Store(h); err == nil {
			_, err = store.Load(ctx, f, image.LoadOptions{})
		}
	}
	return errors.Join(err, f.Close())
}

// capture turns the capture on, and waits until the supervisor has begun a file or is gone. One that could not begin it
// says so at its end, so that the wait has one.
func (o operation) capture(ctx context.Context, h *Home) error {
	before, err := os.Stat(o.beside(captureName))
	if err != nil {
		return err
	}
	sb, err := h.Connect(ctx, o.Name)
	if err != nil {
		return err
	}
	on := o.Key != "off"
	err = sb.SwitchCapture(on)
	for end := time.Now().Add(time.Second); on && err == nil && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		now, e := os.Stat(o.beside(captureName))
		conn, gone := state.DialControl(namedPath(h, o.Name))
		if gone != nil || e == nil && !os.SameFile(before, now) {
			break
		}
		_ = conn.Close()
	}
	return errors.Join(err, sb.Close())
}

func (o operation) exec(ctx context.Context, h *Home) (string, error) {
	sb, err := h.Connect(ctx, o.Name)
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	argv := []string{o.Verb, o.Key}
	if realMachines {
		script := map[string]string{
			"append": `echo "$1" >>/root/tokens`, "token": `echo "$1" >/root/tokens && sync`, "sync": "sync", "list": "cat /root/tokens 2>/dev/null; true", "env": "env | grep ^T_; true", "boot": "cat /proc/sys/kernel/random/boot_id",
		}[o.Verb]
		argv = []string{"/bin/sh", "-c", script, "sh", o.Key}
	}
	st, err := sb.Exec(ctx, ExecOptions{Argv: argv, Stdout: &out})
	if err == nil && st.Code != 0 {
		err = fmt.Errorf("%+v", st)
	}
	return out.String(), errors.Join(err, sb.Close())
}

// startJob starts one that waits, or one that has ended by the time it returns: To is its exit code.
func (o operation) startJob(ctx context.Context, h *Home) error {
	sb, err := h.Connect(ctx, o.Name)
	if err != nil {
		return err
	}
	argv := []string{"wait"}
	switch {
	case o.To != "" && realMachines:
		argv = []string{"/bin/sh", "-c", "exit " + o.To}
	case o.To != "":
		argv = []string{"exit", o.To}
	case realMachines:
		argv = []string{"sleep", "1000000"}
	}
	j, err := sb.StartJob(ctx, o.Job, ExecOptions{Argv: argv})
	if err == nil && o.To != "" {
		_, err = j.Wait(ctx)
	}
	return errors.Join(err, sb.Close())
}

// box is what the model knows of a sandbox.
type box struct {
	runs, damaged bool
	env           map[string]string
	ports         []string
	tokens        []string // in the guest's file
	synced        int      // of them, on the disk
	unsure        bool     // whether those behind synced are still in the file, after a kill
	jobs          map[string]JobState
}

func (b *box) clone() *box {
	c := *b
	c.env, c.jobs, c.ports, c.tokens = maps.Clone(b.env), maps.Clone(b.jobs), slices.Clone(b.ports), slices.Clone(b.tokens)
	return &c
}

// end is what the end of a run does to jobs.
func (b *box) end() {
	b.runs = false
	for name, st := range b.jobs {
		if st == JobRunning {
			b.jobs[name] = JobLost
		}
	}
}

// model is one home as it should be.
type model map[string]*box

// expect says how the operation should end, and does it to the model if it should succeed.
func (m model) expect(o operation) []error {
	b := m[o.Name]
	live := func() []error {
		switch {
		case b == nil:
			return []error{ErrNoSandbox}
		case b.damaged:
			return []error{ErrState}
		case !b.runs:
			return []error{ErrNotRunning}
		}
		return nil
	}
	resting := func() []error {
		switch {
		case b == nil:
			return []error{ErrNoSandbox}
		case b.runs && b.damaged:
			return []error{ErrRunning, ErrState}
		case b.runs:
			return []error{ErrRunning}
		case b.damaged:
			return []error{ErrState}
		}
		return nil
	}
	var wrong []error
	switch o.Verb {
	case "create", "run":
		if b != nil {
			return []error{ErrExists}
		}
		m[o.Name] = &box{runs: o.Verb == "run", env: map[string]string{}, jobs: map[string]JobState{}}
	case "start":
		if wrong = resting(); wrong == nil {
			b.runs = true
		}
	case "stop":
		switch {
		case b == nil:
			return []error{ErrNoSandbox}
		case !b.runs:
			return []error{ErrNotRunning}
		}
		b.end()
		b.synced = len(b.tokens)
	case "remove":
		switch {
		case b == nil:
			return []error{ErrNoSandbox}
		case b.runs:
			return []error{ErrRunning}
		}
		delete(m, o.Name)
	case "rename":
		if wrong = resting(); wrong == nil && m[o.To] != nil {
			return []error{ErrExists}
		}
		if wrong == nil {
			m[o.To] = b
			delete(m, o.Name)
		}
	case "setenv":
		if wrong = resting(); wrong == nil {
			b.env[o.Key] = o.To
		}
	case "unsetenv":
		if wrong = resting(); wrong == nil {
			delete(b.env, o.Key)
		}
	case "addport":
		switch {
		case b == nil:
			return []error{ErrNoSandbox}
		case b.damaged:
			return []error{ErrState}
		}
		b.ports = append(b.ports, o.Key)
	case "rmport":
		switch {
		case b == nil:
			return []error{ErrNoSandbox}
		case b.damaged:
			return []error{ErrState}
		case !slices.Contains(b.ports, o.Key):
			return []error{ErrPort}
		}
		b.ports = slices.DeleteFunc(b.ports, func(p string) bool { return p == o.Key })
	case "prune":
		maps.DeleteFunc(m, func(_ string, b *box) bool { return o.Key == "stopped" && !b.runs && !b.damaged })
	case "append":
		if wrong = live(); wrong == nil {
			b.tokens = append(b.tokens, o.Key)
		}
	case "sync":
		if wrong = live(); wrong == nil {
			b.synced = len(b.tokens)
		}
	case "list", "env":
		wrong = live()
	case "job":
		if wrong = live(); wrong == nil && b.jobs[o.Job] != "" {
			return []error{ErrJobExists}
		}
		if wrong == nil {
			b.jobs[o.Job] = JobRunning
			if o.To != "" {
				b.jobs[o.Job] = JobExited
			}
		}
	case "kill", "rmjob":
		switch {
		case b == nil:
			return []error{ErrNoSandbox}
		case b.damaged:
			return []error{ErrState}
		case b.jobs[o.Job] == "":
			return []error{ErrNoJob}
		case o.Verb == "rmjob" && b.jobs[o.Job] == JobRunning:
			return []error{ErrJobRunning}
		case o.Verb == "rmjob":
			delete(b.jobs, o.Job)
		case b.jobs[o.Job] != JobRunning:
			return []error{ErrJobEnded, ErrNotRunning}
		default:
			b.jobs[o.Job] = JobKilled
		}
	}
	return wrong
}

// machineTest is one run over two homes.
type machineTest struct {
	t      *testing.T
	rand   *rand.Rand
	mark   string // in the environment of every process of the run
	root   string
	homes  []*Home
	models []model
	done   []string // operations
	token  int
	kills  int
}

// TestI13_RandomOperationsLoseNothing: random operations on sandboxes with names, with kills of supervisors and callers, a
// disk that is full and damaged files between them, against a model. What an operation said it did is there; what it did
// not say is there whole or not at all; and nothing stays. The supervisors are real, in processes of their own; their
// machines are not. Not parallel: it forks.
func TestI13_RandomOperationsLoseNothing(t *testing.T) {
	operations, err := strconv.Atoi(cmp.Or(os.Getenv(operationsEnv), strconv.Itoa(fastOperations)))
	must(t, err)
	seed, err := strconv.ParseUint(cmp.Or(os.Getenv(seedEnv), strconv.FormatInt(time.Now().UnixNano(), 10)), 10, 64)
	must(t, err)
	if realMachines && os.Getenv(operationsEnv) == "" {
		t.Skip("with real machines it takes minutes: " + operationsEnv + "=200 asks for it")
	}
	m := &machineTest{t: t, rand: rand.New(rand.NewPCG(seed, 0)), mark: "MSB_TEST_RUN=" + strconv.FormatUint(seed, 10)}
	name, value, _ := strings.Cut(m.mark, "=")
	t.Setenv(name, value)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s=%d %s=%d; the last operations:\n%s", seedEnv, seed, operationsEnv, operations, strings.Join(m.done[max(0, len(m.done)-shownOps):], "\n"))
			for _, pid := range m.processes() {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	})
	m.root = t.TempDir()
	must(t, os.WriteFile(filepath.Join(m.root, "file"), nil, 0o600))
	for range map[bool]int{false: 2, true: 1}[realMachines] {
		m.homes, m.models = append(m.homes, newHome(t)), append(m.models, model{})
	}
	began := time.Now()
	limit := map[bool]time.Duration{false: fastTime, true: realTime}[realMachines]
	for len(m.done) < operations && !t.Failed() && (!realMachines && os.Getenv(operationsEnv) != "" || time.Since(began) < limit) {
		m.step()
	}
	if !t.Failed() {
		m.finish()
	}
	t.Logf("%d operations, %d kills, %s", len(m.done), m.kills, time.Since(began).Round(time.Millisecond))
}

// verbs and how often they come.
var verbs = map[string]int{
	"create": 8, "run": 3, "start": 10, "stop": 8, "remove": 3, "rename": 3, "setenv": 3, "unsetenv": 2, "addport": 3, "rmport": 2, "prune": 1,
	"append": 25, "sync": 8, "list": 10, "env": 4, "job": 10, "kill": 6, "rmjob": 6, "look": 10, "killed": 5, "damage": 1,
}

func (m *machineTest) pick() string {
	all, sum := slices.Sorted(maps.Keys(verbs)), 0
	for _, n := range verbs {
		sum += n
	}
	n := m.rand.IntN(sum)
	for _, verb := range all {
		if n -= verbs[verb]; n < 0 {
			return verb
		}
	}
	return ""
}

func (m *machineTest) oneOf(words ...string) string { return words[m.rand.IntN(len(words))] }

// step does one random operation and compares.
func (m *machineTest) step() {
	i := m.rand.IntN(len(m.homes))
	h, md := m.homes[i], m.models[i]
	for name, b := range md {
		if b.unsure && b.runs && !b.damaged {
			m.readTokens(h, name, b)
		}
	}
	o := operation{Verb: m.pick(), Home: h.Dir(), Root: m.root, Name: m.oneOf("a", "b", "c")}
	switch o.Verb {
	case "rename":
		o.To = m.oneOf("a", "b", "c", "d")
	case "setenv":
		o.Key, o.To = m.oneOf("X", "Y"), strconv.Itoa(m.rand.IntN(100))
	case "unsetenv":
		o.Key = m.oneOf("X", "Y")
	case "addport", "rmport":
		o.Key = m.oneOf("80", "81", "82")
	case "append":
		m.token++
		o.Key = strconv.Itoa(m.token)
	case "prune":
		o.Key = m.oneOf("", "", "", "stopped")
	case "job":
		o.Job, o.To = m.oneOf("x", "y", "z"), m.oneOf("", "", "0", "3")
	case "kill", "rmjob":
		o.Job = m.oneOf("x", "y", "z")
	}
	if o.Verb == "rename" && o.Name == o.To {
		return
	}
	if o.Verb == "addport" && md[o.Name] != nil && slices.Contains(md[o.Name].ports, o.Key) {
		return // a guest's port may be published twice, which a set does not show
	}
	switch {
	case m.rand.IntN(25) == 0:
		o.Kill = time.Duration(m.rand.IntN(60_000)) * time.Microsecond
		if realMachines { // whose starts take seconds
			o.Kill *= 100
		}
	case m.rand.IntN(60) == 0:
		o.Full = true
	}
	m.done = append(m.done, o.String())
	switch {
	case o.Verb == "look":
		m.look(h, md)
	case o.Verb == "killed":
		m.killSupervisor(h, md, o.Name)
	case o.Verb == "damage":
		m.damage(h, md, o.Name)
	case o.Kill > 0 || o.Full:
		m.apart(h, i, o)
	default:
		out, err := o.do(m.t.Context(), h)
		m.compare(md, o, out, err)
	}
}

// fail reports what is not as it should be.
func (m *machineTest) fail(format string, args ...any) {
	m.t.Helper()
	m.t.Errorf("after %q: "+format, append([]any{m.done[len(m.done)-1]}, args...)...)
}

// compare holds the end of an operation against the model's, which it changes.
func (m *machineTest) compare(md model, o operation, out string, err error) {
	m.t.Helper()
	if o.Verb == "start" && err != nil && strings.Contains(err.Error(), "address already in use") {
		return // another program of this machine took the port meanwhile
	}
	wrong := md.expect(o)
	switch {
	case len(wrong) == 0 && err != nil:
		m.fail("%v", err)
	case len(wrong) > 0 && !slices.ContainsFunc(wrong, func(w error) bool { return errors.Is(err, w) }):
		m.fail("%v, want %v", err, wrong)
	}
	b := md[o.Name]
	switch {
	case err != nil || b == nil:
	case o.Verb == "list":
		if got := strings.Fields(out); !slices.Equal(got, b.tokens) {
			m.fail("the guest has %q, want %q", got, b.tokens)
		}
	case o.Verb == "env":
		m.sameEnv(b, strings.Fields(out))
	}
}

func (m *machineTest) sameEnv(b *box, got []string) {
	m.t.Helper()
	var want []string
	for key, value := range b.env {
		want = append(want, "T_"+key+"="+value)
	}
	slices.Sort(want)
	if slices.Sort(got); !slices.Equal(got, want) {
		m.fail("variables %q, want %q", got, want)
	}
}

// look compares all that can be seen of a home from outside.
func (m *machineTest) look(h *Home, md model) {
	m.t.Helper()
	all, err := h.List()
	if err != nil {
		m.fail("%v", err)
		return
	}
	var names []string
	for i := range all {
		names = append(names, all[i].Name)
		b := md[all[i].Name]
		if b == nil {
			m.fail("%s is there", all[i].Name)
			continue
		}
		if b.damaged != (all[i].Problem != "") || !b.damaged && all[i].Running != b.runs {
			m.fail("%s runs: %t, problem %q; want runs %t, damaged %t", all[i].Name, all[i].Running, all[i].Problem, b.runs, b.damaged)
		}
		if !b.damaged {
			m.sameBox(h, all[i].Name, b)
		}
	}
	if want := slices.Sorted(maps.Keys(md)); !slices.Equal(names, want) {
		m.fail("there are %q, want %q", names, want)
	}
}

// sameBox compares what is stored of a sandbox.
func (m *machineTest) sameBox(h *Home, name string, b *box) {
	m.t.Helper()
	env, err := h.Env(name)
	if err != nil {
		m.fail("%s: %v", name, err)
	}
	m.sameEnv(b, env)
	ports, err := h.Ports().List(name)
	var guests []string
	for _, p := range ports {
		guests = append(guests, strconv.Itoa(int(p.Guest)))
	}
	slices.Sort(guests)
	if want := slices.Sorted(slices.Values(b.ports)); err != nil || !slices.Equal(guests, want) {
		m.fail("%s: ports %q, %v; want %q", name, guests, err, want)
	}
	jobs, err := h.Jobs(name)
	got := map[string]JobState{}
	for i := range jobs {
		got[jobs[i].Name] = jobs[i].State
	}
	if err != nil || !maps.Equal(got, b.jobs) {
		m.fail("%s: jobs %v, %v; want %v", name, got, err, b.jobs)
	}
}

// killSupervisor kills that of a sandbox that runs; half of the time the next operation comes at once.
func (m *machineTest) killSupervisor(h *Home, md model, name string) {
	b := md[name]
	if b == nil || !b.runs {
		return
	}
	var r state.RunRecord
	if err := state.ReadJSON(namedPath(h, name), state.InfoFile, &r); err != nil {
		m.fail("%v", err)
		return
	}
	m.kills++
	if m.rand.IntN(4) == 0 { // the machine's process: its supervisor sees it, and ends
		if err := errors.Join(syscall.Kill(r.VMM.PID, syscall.SIGKILL), r.Supervisor.Gone(settleTime)); err != nil {
			m.fail("the VMM: %v", err)
		}
		b.end()
		m.lost(h, name, b, false)
		return
	}
	if err := syscall.Kill(r.Supervisor.PID, syscall.SIGKILL); err != nil {
		m.fail("%v", err)
	}
	if m.rand.IntN(2) == 0 && !b.damaged { // the socket answers no longer, but the lock and the machine may still be there
		for conn, err := state.DialControl(namedPath(h, name)); err == nil; conn, err = state.DialControl(namedPath(h, name)) {
			_ = conn.Close()
		}
		o := operation{Verb: m.oneOf("start", "remove", "setenv"), Home: h.Dir(), Root: m.root, Name: name, Key: "X", To: "at-once"}
		m.done = append(m.done, o.String()+" at once")
		b.end()
		m.lost(h, name, b, o.Verb == "remove")
		out, err := o.do(m.t.Context(), h)
		m.compare(md, o, out, err)
		if o.Verb == "start" && err == nil {
			m.readTokens(h, name, b)
		}
		return
	}
	if err := r.Supervisor.Gone(settleTime); err != nil {
		m.fail("%v", err)
	}
	b.end()
	m.lost(h, name, b, false)
}

// lost takes out of the model what a kill may have taken from the guest: what it had not synced. One that is about to be
// removed is not looked at.
func (m *machineTest) lost(h *Home, name string, b *box, removed bool) {
	if removed || b.synced == len(b.tokens) {
		return
	}
	if realMachines {
		b.unsure = true
		return
	}
	b.tokens = b.tokens[:b.synced] // the fake guest writes at a sync only
}

// readTokens compares the guest's file with the model's.
func (m *machineTest) readTokens(h *Home, name string, b *box) {
	m.t.Helper()
	out, err := operation{Verb: "list", Name: name}.exec(m.t.Context(), h)
	if got := strings.Fields(out); b.unsure && len(got) >= b.synced && len(got) <= len(b.tokens) {
		b.tokens, b.synced, b.unsure = b.tokens[:len(got)], len(got), false
	}
	if got := strings.Fields(out); err != nil || !slices.Equal(got, b.tokens) {
		m.fail("the guest has %q, %v; want %q", got, err, b.tokens)
	}
}

// damage cuts a sandbox's file off, as a disk that lost it does. From then on it can be stopped and removed.
func (m *machineTest) damage(h *Home, md model, name string) {
	b := md[name]
	if b == nil {
		return
	}
	path := namedPath(h, name, state.StoredFile)
	info, err := os.Stat(path)
	if err == nil {
		err = os.Truncate(path, info.Size()/2)
	}
	if err != nil {
		m.fail("%v", err)
	}
	b.damaged = true
}

// apart does an operation in a process of its own, which is killed or whose disk is full. If that says that it is done,
// it is; else it is done or not.
func (m *machineTest) apart(h *Home, i int, o operation) {
	text, err := json.Marshal(o)
	must(m.t, err)
	self, err := os.Executable()
	must(m.t, err)
	cmd := exec.CommandContext(m.t.Context(), self)
	cmd.Env = append(os.Environ(), callerEnv+"="+string(text))
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.WaitDelay = time.Second // its children may have its pipes
	must(m.t, cmd.Start())
	if o.Kill > 0 {
		m.kills++
		timer := time.AfterFunc(o.Kill, func() { _ = cmd.Process.Kill() })
		defer timer.Stop()
	}
	_ = cmd.Wait() // what it printed is what counts
	before := model{}
	for name, b := range m.models[i] {
		before[name] = b.clone()
	}
	after := m.models[i]
	wrong := after.expect(o)
	if out.String() == "done" {
		if len(wrong) > 0 {
			m.fail("it is done, want %v", wrong)
		}
		m.settle(h, o, after)
		return
	}
	if o.Verb == "prune" {
		m.prunePart(h, before)
		m.models[i] = before
		return
	}
	if len(wrong) > 0 { // it could do nothing
		m.settle(h, o, after)
		return
	}
	m.models[i] = m.whichOf(h, o, before, after)
}

// settle waits until the sandboxes of an operation run or don't, as the model has it.
func (m *machineTest) settle(h *Home, o operation, md model) {
	m.t.Helper()
	for _, name := range []string{o.Name, o.To} {
		if b := md[name]; b != nil && !b.damaged {
			if runs := m.runs(h, name); runs != b.runs {
				m.fail("%s runs: %t, want %t", name, runs, b.runs)
			}
		}
	}
}

// runs waits until a sandbox has come to rest: it answers and is ready, or nobody holds its lock.
func (m *machineTest) runs(h *Home, name string) bool {
	m.t.Helper()
	for end := time.Now().Add(settleTime); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		var r state.RunRecord
		if conn, err := state.DialControl(namedPath(h, name)); err == nil {
			_ = conn.Close()
			if state.ReadJSON(namedPath(h, name), state.InfoFile, &r) == nil && r.Info != nil {
				return true
			}
			continue
		}
		run, err := lockNamed(h, name)
		switch {
		case err == nil:
			_ = run.lock.Close()
			return false
		case errors.Is(err, ErrNoSandbox):
			return false
		}
	}
	m.fail("%s does not come to rest", name)
	return false
}

// prunePart takes out of the model what a prune that was killed has removed.
func (m *machineTest) prunePart(h *Home, md model) {
	for name, b := range md {
		if _, err := os.Lstat(namedPath(h, name)); errors.Is(err, fs.ErrNotExist) {
			if b.runs || b.damaged {
				m.fail("%s is gone", name)
			}
			delete(md, name)
		}
	}
}

// whichOf says which of the two has come to be of an operation that did not say.
func (m *machineTest) whichOf(h *Home, o operation, before, after model) model {
	m.t.Helper()
	b := after[o.Name]
	there := func(name string) bool { _, err := os.Lstat(namedPath(h, name)); return err == nil }
	pick := func(is bool) model {
		if is {
			return after
		}
		return before
	}
	switch o.Verb {
	case "create", "remove":
		return pick(there(o.Name) == (o.Verb == "create"))
	case "run":
		if !there(o.Name) {
			return before
		}
		if b.runs = m.runs(h, o.Name); !there(o.Name) {
			return before
		}
		return after
	case "rename":
		return pick(there(o.To))
	case "start":
		return pick(m.runs(h, o.Name))
	case "stop": // it may just be about to
		if err := h.Stop(m.t.Context(), o.Name); err != nil && !errors.Is(err, ErrNotRunning) {
			m.fail("%v", err)
		}
		return after
	case "setenv", "unsetenv":
		env, err := h.Env(o.Name)
		if err != nil {
			m.fail("%v", err)
		}
		return pick(slices.Contains(env, "T_"+o.Key+"="+o.To) || o.Verb == "unsetenv" && !slices.ContainsFunc(env, func(e string) bool { return strings.HasPrefix(e, "T_"+o.Key+"=") }))
	case "addport", "rmport":
		return m.portsOf(h, o, before, after)
	case "append":
		out, err := operation{Verb: "list", Name: o.Name}.exec(m.t.Context(), h)
		if err != nil {
			m.fail("%v", err)
		}
		return pick(slices.Contains(strings.Fields(out), o.Key))
	case "sync":
		if _, err := (operation{Verb: "sync", Name: o.Name}).exec(m.t.Context(), h); err != nil {
			m.fail("%v", err)
		}
		return after
	case "list", "env":
		return after
	}
	return m.jobsOf(h, o, before, after)
}

// portsOf waits for a supervisor to have done what a caller that is gone asked of it, by asking after it.
func (m *machineTest) portsOf(h *Home, o operation, before, after model) model {
	m.t.Helper()
	again := o
	again.Kill, again.Full = 0, false
	if o.Verb == "rmport" {
		if _, err := again.do(m.t.Context(), h); err != nil && !errors.Is(err, ErrPort) {
			m.fail("%v", err)
		}
		return after
	}
	again.Verb = "rmport"
	if _, err := again.do(m.t.Context(), h); err != nil && !errors.Is(err, ErrPort) {
		m.fail("%v", err)
	}
	return before
}

// jobsOf does the same for jobs: what may still be about to happen is done once more.
func (m *machineTest) jobsOf(h *Home, o operation, before, after model) model {
	m.t.Helper()
	ctx, b := m.t.Context(), after[o.Name]
	j, err := h.Job(o.Name, o.Job)
	if errors.Is(err, ErrNoJob) && o.Verb != "job" {
		return after
	}
	if errors.Is(err, ErrNoJob) && o.Verb == "job" { // it may be about to start
		if _, err = o.again(ctx, h); errors.Is(err, ErrJobExists) {
			err = nil
		}
		if err == nil {
			j, err = h.Job(o.Name, o.Job)
		}
	}
	switch {
	case err != nil:
	case o.Verb == "rmjob":
		if err = j.Remove(ctx); errors.Is(err, ErrNoJob) {
			err = nil
		}
	case o.Verb == "kill":
		if err = j.Kill(ctx, agentclient.SIGTERM); errors.Is(err, ErrJobEnded) {
			err = nil
		}
		if err == nil {
			_, err = j.Wait(ctx)
		}
	case o.To != "":
		_, err = j.Wait(ctx)
	}
	if err != nil {
		m.fail("%v", err)
	}
	if b == nil {
		return before
	}
	return after
}

func (o operation) again(ctx context.Context, h *Home) (string, error) {
	o.Kill, o.Full = 0, false
	return o.do(ctx, h)
}

// processes are those of the run, but for this one.
func (m *machineTest) processes() []int { return markedProcesses(m.mark) }

// finish starts what is left once more, removes everything, and looks for what stays.
func (m *machineTest) finish() {
	m.done = append(m.done, "the end")
	ctx := m.t.Context()
	for i, h := range m.homes {
		m.look(h, m.models[i])
		for name, b := range m.models[i] {
			if !b.runs && !b.damaged {
				if _, err := (operation{Verb: "start", Home: h.Dir(), Name: name}).do(ctx, h); err != nil {
					m.fail("%s: %v", name, err)
				}
				b.runs = true
			}
			if !b.damaged {
				m.readTokens(h, name, b)
			}
			if b.runs {
				if err := h.Stop(ctx, name); err != nil {
					m.fail("%s: %v", name, err)
				}
			}
			if err := h.Remove(ctx, name); err != nil {
				m.fail("%s: %v", name, err)
			}
		}
		m.empty(h)
	}
	for end := time.Now().Add(settleTime); len(m.processes()) > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			m.fail("processes %v stay", m.processes())
			break
		}
	}
}

// empty looks for what is left of any sandbox, once what kills left is old enough to be swept.
func (m *machineTest) empty(h *Home) {
	old := time.Now().Add(-2 * newRunGrace)
	for _, sub := range []string{state.NamedDir, state.RunsDir} {
		entries, err := os.ReadDir(filepath.Join(h.Dir(), sub))
		must(m.t, err)
		for _, e := range entries {
			must(m.t, os.Chtimes(filepath.Join(h.Dir(), sub, e.Name()), old, old))
		}
	}
	if _, err := OpenHome(h.Dir()); err != nil {
		m.fail("%v", err)
	}
	for _, sub := range []string{state.NamedDir, state.RunsDir, state.KeptDir, "images/tmp"} {
		entries, err := os.ReadDir(filepath.Join(h.Dir(), sub))
		if errors.Is(err, fs.ErrNotExist) { // of a home in which no image was asked for
			err = nil
		}
		if err != nil || len(entries) > 0 {
			m.fail("in %s: %v, %v", sub, entries, err)
		}
	}
}

// callOnce does one operation in a process of its own, and prints "done" or why not.
func callOnce(text string) int {
	var o operation
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		fmt.Println(err)
		return 2
	}
	if o.Full { // no file of this process grows any more, as on a disk that is full
		signal.Ignore(unix.SIGXFSZ)
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 0, Max: 0}); err != nil {
			fmt.Println(err)
			return 2
		}
	}
	if o.Trap {
		if err := trap(); err != nil {
			fmt.Println(err)
			return 2
		}
	}
	h, err := OpenHome(o.Home)
	if err == nil {
		_, err = o.do(context.Background(), h)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err) // a pipe: no file
		return 1
	}
	fmt.Print("done")
	return 0
}
