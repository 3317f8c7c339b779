package fileops

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/agentd/agentpb"
)

func ownerOf(t *testing.T, name string) (uid, gid uint32, mode fs.FileMode) {
	t.Helper()
	st, err := os.Lstat(name)
	if err != nil {
		t.Fatal(err)
	}
	sys := st.Sys().(*syscall.Stat_t)
	return sys.Uid, sys.Gid, st.Mode()
}

// TestDirectoriesAreMadeAsAsked: with their mode whatever the umask is, and their owner. One that is there stays as it is.
func TestDirectoriesAreMadeAsAsked(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root gives files away")
	}
	defer unix.Umask(unix.Umask(0o027))
	dir := t.TempDir()
	owner := &agentpb.Owner{Uid: 11, Gid: 12}
	if err := errors.Join(os.Mkdir(dir+"/there", 0o700), os.WriteFile(dir+"/file", nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	mkdir := func(m *agentpb.Mkdir) error {
		return Change(&agentpb.ChangeRequest{Change: &agentpb.ChangeRequest_Mkdir{Mkdir: m}})
	}
	for _, c := range []struct {
		mkdir    *agentpb.Mkdir
		uid, gid uint32
		mode     fs.FileMode
	}{
		{&agentpb.Mkdir{Path: dir + "/plain"}, 0, 0, 0o755},
		{&agentpb.Mkdir{Path: dir + "/all", Mode: 0o1777, Owner: owner}, 11, 12, 0o777 | fs.ModeSticky},
		{&agentpb.Mkdir{Path: dir + "/a/b", Mode: 0o770, Parents: true, Owner: owner}, 11, 12, 0o770},
		{&agentpb.Mkdir{Path: dir + "/there", Mode: 0o777, Parents: true, Owner: owner}, 0, 0, 0o700},
	} {
		if err := mkdir(c.mkdir); err != nil {
			t.Error(err)
			continue
		}
		if uid, gid, mode := ownerOf(t, c.mkdir.GetPath()); uid != c.uid || gid != c.gid || mode != fs.ModeDir|c.mode {
			t.Errorf("%s: %d:%d %s", c.mkdir.GetPath(), uid, gid, mode)
		}
	}
	if uid, gid, mode := ownerOf(t, dir+"/a"); uid != 0 || gid != 0 || mode != fs.ModeDir|0o750 {
		t.Errorf("a parent: %d:%d %s", uid, gid, mode)
	}
	for _, m := range []*agentpb.Mkdir{{Path: dir + "/there"}, {Path: dir + "/file", Parents: true}} {
		if err := mkdir(m); !errors.Is(err, fs.ErrExist) {
			t.Errorf("%v: %v", m, err)
		}
	}
}

// TestImpossiblePathsAreRefused, wherever in a request they are.
func TestImpossiblePathsAreRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/f", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"relative", "", dir + "/x\x00y"} {
		for _, r := range []*agentpb.Rename{{From: dir + "/f", To: bad}, {From: bad, To: dir + "/f"}} {
			if err := Change(&agentpb.ChangeRequest{Change: &agentpb.ChangeRequest_Rename{Rename: r}}); !errors.Is(err, syscall.EINVAL) {
				t.Errorf("%q to %q: %v", r.GetFrom(), r.GetTo(), err)
			}
		}
	}
	if _, err := os.Stat(dir + "/f"); err != nil {
		t.Error(err)
	}
}

// TestListingsAreWholeAndInParts with owner and time of each file.
func TestListingsAreWholeAndInParts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var want, got []string
	for i := range listBatch + 10 {
		want = append(want, fmt.Sprintf("f%05d", i))
		if err := os.WriteFile(filepath.Join(dir, want[i]), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := List(dir, func(all []*agentpb.FileInfo) error {
		if len(all) > listBatch {
			t.Errorf("%d entries are in a message", len(all))
		}
		for _, e := range all {
			got = append(got, string(e.GetName()))
		}
		return nil
	}); err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %d names, want %d", err, len(got), len(want))
	}
	name, at := filepath.Join(dir, want[0]), time.Unix(1_000_000_000, 123_456_789)
	if err := os.Chtimes(name, at, at); err != nil {
		t.Fatal(err)
	}
	uid, gid := uint32(os.Getuid()), uint32(os.Getgid())
	if uid == 0 {
		uid, gid = 11, 12
	}
	if err := os.Lchown(name, int(uid), int(gid)); err != nil {
		t.Fatal(err)
	}
	if st, err := Stat(name, false); err != nil || st.GetUid() != uid || st.GetGid() != gid || st.GetModifiedUnixNs() != at.UnixNano() {
		t.Errorf("%v, %v", st, err)
	}
}

// TestUnpackedFilesHaveTheirOwners: those of the archive, or the one that was asked for.
func TestUnpackedFilesHaveTheirOwners(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root gives files away")
	}
	for _, c := range []struct {
		owner    *agentpb.Owner
		uid, gid uint32
	}{{nil, 11, 12}, {&agentpb.Owner{Uid: 21, Gid: 22}, 21, 22}, {&agentpb.Owner{}, 0, 0}} {
		var archive bytes.Buffer
		w := tar.NewWriter(&archive)
		if err := errors.Join(w.WriteHeader(&tar.Header{Name: "f", Typeflag: tar.TypeReg, Mode: 0o640, Uid: 11, Gid: 12}), w.Close()); err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		if _, err := Unpack(t.Context(), &agentpb.UnpackStart{Path: dir, Owner: c.owner}, &archive); err != nil {
			t.Fatal(err)
		}
		if uid, gid, mode := ownerOf(t, dir+"/f"); uid != c.uid || gid != c.gid || mode != 0o640 {
			t.Errorf("%v: %d:%d %s", c.owner, uid, gid, mode)
		}
	}
}

// TestTheKernelsFilesAreNotPacked, asked for by their own path.
func TestTheKernelsFilesAreNotPacked(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string]int64{"/proc/self/status": unix.PROC_SUPER_MAGIC, "/proc/self": unix.PROC_SUPER_MAGIC, "/sys/kernel": unix.SYSFS_MAGIC, "/dev/pts": unix.DEVPTS_SUPER_MAGIC} {
		var st unix.Statfs_t
		if err := unix.Statfs(name, &st); err != nil || st.Type != kind {
			continue // nothing of the kind is there
		}
		if _, err := Pack(t.Context(), io.Discard, name, "", true); !errors.Is(err, errSynthetic) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestLongFilesGoPastTheCacheForATime, and by it before and after.
func TestLongFilesGoPastTheCacheForATime(t *testing.T) {
	t.Parallel()
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, past := range []bool{false, true, true, false, false} {
		if err := pastCache(f, past); errors.Is(err, unix.EINVAL) {
			t.Skip("the file system has a cache for all")
		} else if err != nil {
			t.Fatal(err)
		}
		if flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0); err != nil || (flags&unix.O_DIRECT != 0) != past {
			t.Errorf("past the cache %t: flags %x, %v", past, flags, err)
		}
	}
}
