//go:build !vmtest

package sandbox

import (
	"cmp"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/msb-project/msb/image"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// pairErrors are how one of two commands may fail that come at the same time: as if the other had come before.
var pairErrors = []error{
	ErrExists, ErrRunning, ErrNotRunning, ErrNoSandbox, ErrPort, ErrJobExists, ErrNoJob, ErrJobEnded, ErrJobRunning,
	ErrSnapshotExists, ErrNoSnapshot, ErrNotSaved, ErrNoVolume, ErrVolumeBusy, ErrSnapshotOf, ErrRequest, ErrPaused, state.ErrCacheBusy,
	image.ErrNotCached,
}

// TestI13_ConcurrentVerbsAreSerialised does two operations at once on the sandboxes a and b, for every two verbs that write state. Each is done or
// fails as if the other had come first; another sandbox stays as it was; what both made can be removed, and nothing stays.
// Verbs that start machines are in it with MSB_TEST_FAULTS. Not parallel: it forks.
func TestI13_ConcurrentVerbsAreSerialised(t *testing.T) {
	m := &machineTest{t: t, mark: "MSB_TEST_RUN=" + strconv.FormatInt(time.Now().UnixNano(), 10), root: t.TempDir()}
	name, value, _ := strings.Cut(m.mark, "=")
	t.Setenv(name, value)
	t.Cleanup(func() {
		for _, pid := range m.processes() {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	must(t, os.WriteFile(filepath.Join(m.root, "file"), nil, 0o600))
	h, all, pairs, began := newHome(t), faultVerbs(), 0, time.Now()
	m.homes = []*Home{h}
	must(t, os.WriteFile(operation{Home: h.Dir()}.beside(archiveName), anImageArchive(t, loadedImage, &image.Config{Cmd: []string{"run"}}).Bytes(), 0o600))
	verbs := slices.DeleteFunc(slices.Sorted(maps.Keys(all)), func(v string) bool { return os.Getenv(faultsEnv) == "" && all[v].machines() > 0 })
	for apart := range len(verbs) { // each verb comes before any has all of its pairs
		for i, one := range verbs[:len(verbs)-apart] {
			a, b := all[one], all[verbs[i+apart]]
			if a.made != b.made && a.made != "" && b.made != "" {
				continue // of two sandboxes that can't be one
			}
			if !t.Failed() && (os.Getenv(faultsEnv) != "" || time.Since(began) < faultsTime) {
				m.pair(h, a, b)
				pairs++
			}
		}
	}
	t.Logf("%d pairs", pairs)
}

func (m *machineTest) pair(h *Home, verbs ...*faultVerb) {
	m.t.Helper()
	m.done = []string{verbs[0].op.String() + " and " + verbs[1].op.String()}
	made := cmp.Or(verbs[0].made, verbs[1].made)
	prepare := slices.Concat(verbs[0].first, verbs[1].first, []operation{{Verb: "create", Name: "a", Key: made}, {Verb: "setenv", Name: "a", Key: "X", To: "1"}, {Verb: "create", Name: "c"}, {Verb: "setenv", Name: "c", Key: "Y", To: "2"}})
	if verbs[0].runs || verbs[1].runs {
		prepare = append(prepare, operation{Verb: "start", Name: "a"})
	}
	for _, v := range verbs {
		prepare = append(prepare, v.before...)
	}
	done := func(err error) bool {
		return err == nil || slices.ContainsFunc(pairErrors, func(w error) bool { return isError(err, w) })
	}
	for _, o := range prepare {
		_, err := m.at(h, o).do(m.t.Context(), h)
		if !done(err) { // what one of them needs may be in the way of what the other needs
			m.fail("%s: %v", o, err)
			return
		}
	}
	var work sync.WaitGroup
	begin := make(chan struct{})
	errs := make([]error, len(verbs))
	for i, v := range verbs {
		work.Go(func() {
			<-begin
			_, errs[i] = m.at(h, v.op).do(m.t.Context(), h)
		})
	}
	close(begin)
	work.Wait()
	for i, err := range errs {
		if !done(err) && !slices.ContainsFunc(verbs[i].again, func(w error) bool { return isError(err, w) }) {
			m.fail("%s: %v", verbs[i].op, err)
		}
	}
	for _, name := range []string{"a", "b"} {
		m.rests(h, name)
		if _, err := os.Lstat(namedPath(h, name)); err == nil && !isWhole(h, name) {
			m.fail("%s is damaged", name)
		}
	}
	if env, err := h.Env("c"); (err != nil || !slices.Equal(env, []string{"T_Y=2"})) && verbs[0].op.Verb != "prune" && verbs[1].op.Verb != "prune" {
		m.fail("another sandbox has %q, %v", env, err)
	}
	m.sweepAll(h)
}
