package fileops

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/msb-project/msb/agentd/agentpb"
)

// TestOwnerAndModeOfWrites: a new file has those that were asked for or the agent's and 0644, a file that is replaced keeps its
// own mode, and its owner unless one was asked for.
func TestOwnerAndModeOfWrites(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root gives files away")
	}
	owner := func(uid, gid uint32) *agentpb.Owner { return &agentpb.Owner{Uid: uid, Gid: gid} }
	for name, tt := range map[string]struct {
		before bool // a file 0750 of 11:12
		start  *agentpb.WriteStart
		uid    uint32
		gid    uint32
		mode   fs.FileMode
	}{
		"new":                   {false, &agentpb.WriteStart{}, 0, 0, 0o644},
		"new, given":            {false, &agentpb.WriteStart{Owner: owner(21, 22)}, 21, 22, 0o644},
		"new, mode":             {false, &agentpb.WriteStart{Mode: 0o600}, 0, 0, 0o600},
		"new, setuid":           {false, &agentpb.WriteStart{Mode: 0o4711}, 0, 0, 0o711 | fs.ModeSetuid},
		"new, exclusive":        {false, &agentpb.WriteStart{Exclusive: true, Owner: owner(21, 22), Mode: 0o640}, 21, 22, 0o640},
		"replaced":              {true, &agentpb.WriteStart{}, 11, 12, 0o750},
		"replaced, mode":        {true, &agentpb.WriteStart{Mode: 0o600}, 11, 12, 0o750},
		"replaced, given":       {true, &agentpb.WriteStart{Owner: owner(21, 22)}, 21, 22, 0o750},
		"replaced, given away":  {true, &agentpb.WriteStart{Owner: owner(0, 0)}, 0, 0, 0o750},
		"appended to":           {true, &agentpb.WriteStart{Append: true, Owner: owner(21, 22), Mode: 0o600}, 11, 12, 0o750},
		"appended to, and made": {false, &agentpb.WriteStart{Append: true, Owner: owner(21, 22), Mode: 0o600}, 21, 22, 0o600},
	} {
		path := filepath.Join(t.TempDir(), "f")
		if tt.before {
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chown(path, 11, 12); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(path, 0o750); err != nil {
				t.Fatal(err)
			}
		}
		tt.start.Path = path
		parts := [][]byte{[]byte("text"), nil}
		if _, err := Write(tt.start, func() ([]byte, error) {
			b := parts[0]
			if parts = parts[1:]; b == nil {
				return nil, io.EOF
			}
			return b, nil
		}); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		sys := info.Sys().(*syscall.Stat_t)
		if sys.Uid != tt.uid || sys.Gid != tt.gid || info.Mode() != tt.mode {
			t.Errorf("%s: %d:%d %s, want %d:%d %s", name, sys.Uid, sys.Gid, info.Mode(), tt.uid, tt.gid, tt.mode)
		}
	}
}

// TestI14_UnfinishedWritesAreTheAgentsAlone: until a file has its owner and permissions, nobody else reads what is written
// for it.
func TestI14_UnfinishedWritesAreTheAgentsAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	calls := 0
	_, err := Write(&agentpb.WriteStart{Path: filepath.Join(dir, "token"), Mode: 0o600}, func() ([]byte, error) {
		if calls++; calls == 1 {
			return []byte("a secret"), nil
		}
		all, err := os.ReadDir(dir)
		if err != nil || len(all) != 1 {
			t.Errorf("%v, %v", all, err)
		}
		for _, e := range all {
			if info, err := e.Info(); err != nil || info.Mode() != 0o600 {
				t.Errorf("%s is %v, %v", e.Name(), info.Mode(), err)
			}
		}
		return nil, io.EOF
	})
	if err != nil {
		t.Error(err)
	}
}

// text is what a write gets, then its end.
func text(s string, end error) func() ([]byte, error) {
	return func() ([]byte, error) {
		b := []byte(s)
		if s = ""; len(b) > 0 {
			return b, nil
		}
		return nil, end
	}
}

// TestReplacedFilesKeepTheirSetuidBits, which a change of the owner takes off.
func TestReplacedFilesKeepTheirSetuidBits(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "f")
	const mode = 0o755 | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky
	if err := errors.Join(os.WriteFile(name, nil, 0o600), os.Chmod(name, mode)); err != nil {
		t.Fatal(err)
	}
	if _, err := Write(&agentpb.WriteStart{Path: name}, text("new", io.EOF)); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(name); err != nil || st.Mode() != mode {
		t.Errorf("%v, %v", st.Mode(), err)
	}
}

// TestI14_WritesDontFollowLinksOfTheirOwnNames: a guest's user may guess the name of the file beside the one that is written.
func TestI14_WritesDontFollowLinksOfTheirOwnNames(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	victim, name := filepath.Join(dir, "victim"), filepath.Join(dir, "d", "f")
	if err := errors.Join(os.WriteFile(victim, []byte("theirs"), 0o600), os.Mkdir(filepath.Dir(name), 0o755)); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if err := os.Symlink(victim, filepath.Join(dir, "d", fmt.Sprintf(".msb-write-%d", i))); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Write(&agentpb.WriteStart{Path: name}, text("mine", io.EOF)); err != nil {
		t.Error(err)
	}
	for file, want := range map[string]string{victim: "theirs", name: "mine"} {
		if b, err := os.ReadFile(file); err != nil || string(b) != want {
			t.Errorf("%s: %q, %v", file, b, err)
		}
	}
}

// TestWritesLeaveNothingBeside what they have written: not when they succeed, not when they fail at their very end.
func TestWritesLeaveNothingBeside(t *testing.T) {
	t.Parallel()
	broken := errors.New("the source broke")
	for what, tt := range map[string]struct {
		start *agentpb.WriteStart
		end   error
		dir   bool // takes the file's place meanwhile
	}{
		"written": {&agentpb.WriteStart{}, io.EOF, false}, "exclusive": {&agentpb.WriteStart{Exclusive: true}, io.EOF, false},
		"broken": {&agentpb.WriteStart{}, broken, false}, "a directory came": {&agentpb.WriteStart{}, io.EOF, true}, "exclusive, a directory came": {&agentpb.WriteStart{Exclusive: true}, io.EOF, true},
	} {
		dir := t.TempDir()
		tt.start.Path = filepath.Join(dir, "f")
		next := text("x", tt.end)
		_, err := Write(tt.start, func() ([]byte, error) {
			if tt.dir {
				_ = os.Mkdir(tt.start.Path, 0o700) // once
			}
			return next()
		})
		if (err != nil) != (tt.dir || tt.end == broken) { //nolint:errorlint // it is the value of the row
			t.Errorf("%s: %v", what, err)
		}
		all, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range all {
			if e.Name() != "f" {
				t.Errorf("%s: %s is left", what, e.Name())
			}
		}
	}
}

// TestBrokenAppendsAreTold, and what came before the break stays.
func TestBrokenAppendsAreTold(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(name, []byte("old,"), 0o600); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("the source broke")
	if _, err := Write(&agentpb.WriteStart{Path: name, Append: true}, text("new", broken)); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	if b, err := os.ReadFile(name); err != nil || string(b) != "old,new" {
		t.Errorf("%q, %v", b, err)
	}
	for _, bad := range [][2]int64{{-1, 0}, {0, -1}} {
		if err := Read(name, bad[0], bad[1], func([]byte) error { return nil }); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%d bytes from %d: %v", bad[1], bad[0], err)
		}
	}
}
