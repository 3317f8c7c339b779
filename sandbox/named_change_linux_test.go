package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox/internal/state"
)

func TestRenameKeepsTheSandbox(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	must(t, aNamed(t, h, "web"))
	must(t, aNamed(t, h, "taken"))
	must(t, os.WriteFile(namedPath(h, "web", state.ConsoleLog), []byte("words"), 0o600))
	for to, want := range map[string]error{"taken": ErrExists, "../x": ErrName, "web": ErrExists} {
		if err := h.Rename(t.Context(), "web", to); !errors.Is(err, want) || KindOf(err) != KindSandbox {
			t.Errorf("to %s: %v, want %v", to, err, want)
		}
	}
	run, err := lockNamed(h, "web")
	must(t, err)
	l, err := state.ListenControl(run.dir)
	must(t, err)
	if err := h.Rename(t.Context(), "web", "shop"); !errors.Is(err, ErrRunning) {
		t.Errorf("one that runs: %v, want ErrRunning", err)
	}
	must(t, l.Close())
	must(t, os.Remove(filepath.Join(run.dir, state.ControlSock)))
	must(t, run.lock.Close())
	must(t, h.Rename(t.Context(), "web", "shop"))
	st, err := loadStored(h, "shop")
	if err != nil || st.Name != "shop" || st.Hostname != "shop" {
		t.Errorf("%+v, %v", st, err)
	}
	if b, err := h.Console("shop"); err != nil || string(b) != "words" {
		t.Errorf("its log: %q, %v", b, err)
	}
	if err := h.Rename(t.Context(), "web", "again"); !errors.Is(err, ErrNoSandbox) {
		t.Errorf("the old name: %v, want ErrNoSandbox", err)
	}
	must(t, h.Rename(t.Context(), "shop", "web")) // and back
}

// TestI13_KilledRenamesLoseNothing: whichever step a kill comes after, the sandbox is there under one name, and can be
// used, renamed and removed.
func TestI13_KilledRenamesLoseNothing(t *testing.T) {
	t.Parallel()
	for _, moved := range []bool{false, true} {
		h := newHome(t)
		must(t, aNamed(t, h, "old"))
		st, err := loadStored(h, "old")
		must(t, err)
		st.Renamed = "new"
		must(t, state.WriteJSON(namedPath(h, "old"), state.StoredFile, st))
		name := "old"
		if moved {
			name = "new"
			must(t, os.Rename(namedPath(h, "old"), namedPath(h, "new")))
		}
		all, err := h.List()
		if err != nil || len(all) != 1 || all[0].Name != name || all[0].Problem != "" {
			t.Errorf("moved %v: %+v, %v", moved, all, err)
		}
		must(t, h.SetEnv(t.Context(), name, "A=b"))
		must(t, h.Rename(t.Context(), name, "third"))
		must(t, h.Remove(t.Context(), "third"))
	}
}

func TestEnvIsChangedByName(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	must(t, aNamed(t, h, "web"))
	must(t, h.SetEnv(t.Context(), "web", "A=1", "B=2=3", "EMPTY="))
	must(t, h.SetEnv(t.Context(), "web", "A=4"))
	must(t, h.UnsetEnv(t.Context(), "web", "EMPTY", "NEVER"))
	if env, err := h.Env("web"); err != nil || !slices.Equal(env, []string{"B=2=3", "A=4"}) {
		t.Errorf("%q, %v", env, err)
	}
	for _, bad := range []string{"", "A", "=b", "A=b\x00c"} {
		if err := h.SetEnv(t.Context(), "web", "C=d", bad); !errors.Is(err, ErrVariable) {
			t.Errorf("set %q: %v, want ErrVariable", bad, err)
		}
	}
	for _, bad := range []string{"", "A=4", "A\x00"} {
		if err := h.UnsetEnv(t.Context(), "web", bad); !errors.Is(err, ErrVariable) {
			t.Errorf("unset %q: %v, want ErrVariable", bad, err)
		}
	}
	if err := h.SetEnv(t.Context(), "nosuch", "A=1"); !errors.Is(err, ErrNoSandbox) {
		t.Errorf("%v, want ErrNoSandbox", err)
	}
	if env, err := h.Env("web"); err != nil || len(env) != 2 {
		t.Errorf("after refused changes: %q, %v", env, err)
	}
}

func TestResetEmptiesTheDisk(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	must(t, aNamed(t, h, "web"))
	disk := namedPath(h, "web", state.UpperDisk)
	before, err := os.ReadFile(disk)
	must(t, err)
	must(t, os.WriteFile(disk, []byte("what a guest wrote"), 0o600))
	must(t, os.WriteFile(namedPath(h, "web", state.NewUpperDisk), nil, 0o600)) // of a reset that was killed
	must(t, h.SetEnv(t.Context(), "web", "A=1"))
	memory, err := state.PairWithMemory(disk)
	must(t, err)
	must(t, os.WriteFile(namedPath(h, "web", memory), []byte("what a guest had in memory"), 0o600))
	must(t, h.Reset(t.Context(), "web"))
	if _, err := os.Lstat(namedPath(h, "web", memory)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its memory: %v", err)
	}
	after, err := os.ReadFile(disk)
	must(t, err)
	if len(after) != len(before) || strings.Contains(string(after), "a guest wrote") {
		t.Errorf("%d bytes before, %d after", len(before), len(after))
	}
	if env, err := h.Env("web"); err != nil || !slices.Equal(env, []string{"A=1"}) {
		t.Errorf("its settings: %q, %v", env, err)
	}
	if err := h.Reset(t.Context(), "nobody"); !errors.Is(err, ErrNoSandbox) {
		t.Errorf("one that is not there: %v", err)
	}
	run, err := lockNamed(h, "web")
	must(t, err)
	if err := h.Reset(t.Context(), "web"); !errors.Is(err, ErrRunning) {
		t.Errorf("one that runs: %v", err)
	}
	must(t, run.lock.Close())
	must(t, h.Remove(t.Context(), "web")) // all its files are msb's
}

func TestI13_ChangesReplaceHalfWrittenState(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	must(t, aNamed(t, h, "web"))
	for _, name := range []string{".sandbox.json106690726", ".ca.pem1"} {
		must(t, os.WriteFile(namedPath(h, "web", name), nil, 0o600))
	}
	must(t, h.Rename(t.Context(), "web", "site"))
	left, err := filepath.Glob(namedPath(h, "site", ".*"))
	must(t, err)
	if len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if _, err := loadStored(h, "site"); err != nil {
		t.Error(err)
	}
}

// TestResetsForgetCopies: the guest is shown a directory as it is now, and no change of before. One beside it stays.
func TestResetsForgetCopies(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	cfg := Config{Home: h.Dir(), Name: "web", Disk: 64 << 20, Policy: policies.Default(), Image: "dir:" + t.TempDir()}
	cfg.Directories = []Directory{{Host: t.TempDir(), Guest: "/plain"}, {Host: t.TempDir(), Guest: "/work", CopyOnWrite: true}}
	must(t, Create(t.Context(), cfg))
	base := state.BaseFile(namedPath(h, "web"), "/work")
	must(t, os.WriteFile(base, nil, 0o600))
	must(t, h.Reset(t.Context(), "web"))
	if there(t, base) {
		t.Error("what was shown to the guest is still recorded")
	}
}

// TestResetsRemoveJobs, whose output is of the disk that goes. A variable stays.
func TestResetsRemoveJobs(t *testing.T) {
	t.Parallel()
	h, _ := aMade(t)
	must(t, h.SetEnv(t.Context(), "web", "A=1"))
	dir := namedPath(h, "web", state.JobsDir)
	must(t, os.Mkdir(dir, 0o700))
	must(t, (&state.StoredJob{JobStatus: JobStatus{Name: "a", State: JobExited}}).Create(dir))
	must(t, h.Reset(t.Context(), "web"))
	if jobs, err := h.Jobs("web"); err != nil || len(jobs) > 0 {
		t.Errorf("%+v, %v", jobs, err)
	}
	if env, err := h.Env("web"); err != nil || len(env) != 1 {
		t.Errorf("%q, %v", env, err)
	}
}
