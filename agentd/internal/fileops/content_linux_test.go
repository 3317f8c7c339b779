package fileops

import (
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
