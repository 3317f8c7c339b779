package sandbox

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/agentd/agentpb"
	"github.com/msb-project/msb/internal/handoff"
	"github.com/msb-project/msb/internal/tartree"
)

// fileGuest is a guest whose every path is a file of that mode, or else isn't there. Its archive is what a test says.
type fileGuest struct {
	agentpb.UnimplementedFilesServer
	mode    uint32 // 0 for none
	archive []byte
	report  *agentpb.TreeReport // nil: the call fails behind the archive
	full    bool                // nothing is extracted
	refuses unix.Errno          // of Stat; 0 for none

	asked []any // the calls, in their order
	came  []byte
	ended bool // it has come to its end
}

// askedStat, askedPack and askedUnpack are what a call was of.
type (
	askedStat struct {
		path   string
		follow bool
	}
	askedPack   askedStat
	askedUnpack struct {
		path      string
		keepOwner bool
	}
)

// refusal is a guest's error of a file.
func refusal(op, path string, number unix.Errno) error {
	st, err := status.New(codes.NotFound, number.Error()).WithDetails(&agentpb.FileError{Errno: uint32(number), Op: op, Path: path})
	if err != nil {
		return err
	}
	return st.Err()
}

func (g *fileGuest) Stat(_ context.Context, r *agentpb.StatRequest) (*agentpb.FileInfo, error) {
	g.asked = append(g.asked, askedStat{r.GetPath(), r.GetFollow()})
	if g.mode == 0 || g.refuses != 0 {
		return nil, refusal("stat", r.GetPath(), cmp.Or(g.refuses, unix.ENOENT))
	}
	return &agentpb.FileInfo{Name: []byte(path.Base(r.GetPath())), Mode: g.mode}, nil
}

func (g *fileGuest) Pack(r *agentpb.PackRequest, s grpc.ServerStreamingServer[agentpb.PackResponse]) error {
	g.asked = append(g.asked, askedPack{r.GetPath(), r.GetFollow()})
	for rest := g.archive; len(rest) > 0; {
		part := rest[:min(len(rest), agentpb.ArchiveChunkBytes)]
		if err := s.Send(&agentpb.PackResponse{Data: part}); err != nil {
			return err
		}
		rest = rest[len(part):]
	}
	if g.report == nil {
		return refusal("pack", r.GetPath(), unix.EIO)
	}
	return s.Send(&agentpb.PackResponse{Report: g.report})
}

func (g *fileGuest) Unpack(s grpc.ClientStreamingServer[agentpb.UnpackRequest, agentpb.TreeReport]) error {
	first, err := s.Recv()
	if err != nil {
		return err
	}
	g.asked = append(g.asked, askedUnpack{first.GetStart().GetPath(), first.GetStart().GetOwner() == nil})
	for {
		m, err := s.Recv()
		if g.full {
			return refusal("write", "/d", unix.ENOSPC)
		}
		if errors.Is(err, io.EOF) {
			g.ended = true
			return s.SendAndClose(&agentpb.TreeReport{})
		}
		if err != nil {
			return err
		}
		g.came = append(g.came, m.GetData()...)
	}
}

// sandboxOf is one whose guest is g.
func sandboxOf(t *testing.T, g *fileGuest) *Sandbox {
	t.Helper()
	return sandboxServedBy(t, func(srv *grpc.Server) { agentpb.RegisterFilesServer(srv, g) })
}

func sandboxServedBy(t *testing.T, register func(*grpc.Server)) *Sandbox {
	t.Helper()
	host, guest := net.Pipe()
	srv := grpc.NewServer(grpc.WaitForHandlers(true))
	register(srv)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(handoff.Of(guest)) }()
	client, err := agentclient.Attach(host)
	must(t, err)
	t.Cleanup(func() { _ = client.Close(); srv.Stop(); <-served })
	return &Sandbox{client: client}
}

const (
	aFile      = unix.S_IFREG | 0o644
	aDirectory = unix.S_IFDIR | 0o755
)

// entries is an archive of headers without content.
func entries(t *testing.T, list ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := range list {
		must(t, w.WriteHeader(&list[i]))
	}
	_ = w.Close() // content that is missing is an error
	return b.Bytes()
}

// aRoomOf1MiB is a directory in a file system of its own: how much may be copied depends on what is free.
func aRoomOf1MiB(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m,nr_inodes=0"); err != nil {
		t.Fatal("it needs root, as make test does: ", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

// TestI14_CopiesFromGuestsHaveNoSetID: whoever may run them would have the rights of whom they belong to here.
func TestI14_CopiesFromGuestsHaveNoSetID(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		mode  uint32
		sent  []tar.Header
		copy  string
		modes map[string]fs.FileMode
	}{
		"a file": {aFile, []tar.Header{{Name: "x", Typeflag: tar.TypeReg, Mode: 0o6755}}, "x", map[string]fs.FileMode{"": 0o755}},
		"a directory": {
			aDirectory, []tar.Header{{Name: "x/", Typeflag: tar.TypeDir, Mode: 0o6755}, {Name: "x/y", Typeflag: tar.TypeReg, Mode: 0o4711}, {Name: "x/z/", Typeflag: tar.TypeDir, Mode: 0o2750}},
			"x", map[string]fs.FileMode{"": fs.ModeDir | 0o755, "y": 0o711, "z": fs.ModeDir | 0o750},
		},
	} {
		dir := aRoomOf1MiB(t)
		_, err := sandboxOf(t, &fileGuest{mode: c.mode, archive: entries(t, c.sent...), report: &agentpb.TreeReport{}}).CopyFrom(t.Context(), "/"+c.copy, dir, CopyOptions{KeepOwner: true})
		must(t, err)
		for name, want := range c.modes {
			if st, err := os.Lstat(filepath.Join(dir, c.copy, name)); err != nil || st.Mode() != want {
				t.Errorf("%s: %s is %v, %v; want %v", what, name, st, err, want)
			}
		}
	}
}

// TestI11_CopiesFromGuestsFillNoDisk: neither a file that says that it is long nor empty files without end, which take no
// bytes of the archive's. The twin is as many as there is room for.
func TestI11_CopiesFromGuestsFillNoDisk(t *testing.T) {
	t.Parallel()
	dir := aRoomOf1MiB(t)
	many := func(n int) []tar.Header {
		all := []tar.Header{{Name: "x/", Typeflag: tar.TypeDir}}
		for range n {
			all = append(all, tar.Header{Name: "x/" + strings.Repeat("d", len(all)%200+1), Typeflag: tar.TypeDir})
		}
		return all
	}
	for what, c := range map[string]struct {
		mode  uint32
		sent  []tar.Header
		fails bool
	}{
		"a long file":      {aFile, []tar.Header{{Name: "x", Typeflag: tar.TypeReg, Size: 1 << 40}}, true},
		"many directories": {aDirectory, many(1000), true},
		"some directories": {aDirectory, many(100), false},
	} {
		_, err := sandboxOf(t, &fileGuest{mode: c.mode, archive: entries(t, c.sent...), report: &agentpb.TreeReport{}}).CopyFrom(t.Context(), "/x", filepath.Join(dir, what), CopyOptions{})
		if (err != nil) != c.fails || c.fails && !strings.Contains(err.Error(), "larger than allowed") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestCopiesFromGuestsTellWhatIsLeftOut by the guest, and here.
func TestCopiesFromGuestsTellWhatIsLeftOut(t *testing.T) {
	t.Parallel()
	sent := entries(t, tar.Header{Name: "x/", Typeflag: tar.TypeDir, Mode: 0o755}, tar.Header{Name: "x/fifo", Typeflag: tar.TypeFifo}, tar.Header{Name: "x/f", Typeflag: tar.TypeReg})
	g := &fileGuest{mode: aDirectory, archive: sent, report: &agentpb.TreeReport{Entries: 9, Skipped: []string{"x/socket"}, SkippedMore: 3}}
	got, err := sandboxOf(t, g).CopyFrom(t.Context(), "/x", aRoomOf1MiB(t), CopyOptions{})
	if want := (CopyReport{Entries: 2, Skipped: []string{"fifo", "x/socket"}, SkippedMore: 3}); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
}

// TestCopiesFromGuestsFailBehindTheArchive: that a file changed while it was packed is only known at the end.
func TestCopiesFromGuestsFailBehindTheArchive(t *testing.T) {
	t.Parallel()
	g := &fileGuest{mode: aFile, archive: entries(t, tar.Header{Name: "x", Typeflag: tar.TypeReg})}
	if _, err := sandboxOf(t, g).CopyFrom(t.Context(), "/x", filepath.Join(aRoomOf1MiB(t), "x"), CopyOptions{}); !errors.Is(err, unix.EIO) {
		t.Errorf("%v", err)
	}
}

// TestCopiesFromGuestsFollowAsLooked: the guest describes a link and packs what it leads to, or neither.
func TestCopiesFromGuestsFollowAsLooked(t *testing.T) {
	t.Parallel()
	for src, c := range map[string]struct {
		asked  string
		follow bool // without --follow-link
	}{"/l": {"/l", false}, "/l/": {"/l/", true}, "/l/.": {"/l", true}} {
		for _, follow := range []bool{true, false} {
			g := &fileGuest{mode: aDirectory, archive: entries(t, tar.Header{Name: "l/", Typeflag: tar.TypeDir}), report: &agentpb.TreeReport{}}
			_, err := sandboxOf(t, g).CopyFrom(t.Context(), src, aRoomOf1MiB(t), CopyOptions{Follow: follow})
			want := []any{askedStat{c.asked, follow || c.follow}, askedPack{c.asked, follow || c.follow}}
			if err != nil || !reflect.DeepEqual(g.asked, want) {
				t.Errorf("%s, followed: %t: asked %+v, %v; want %+v", src, follow, g.asked, err, want)
			}
		}
	}
}

// TestCopiesToGuestsAreNamedForTheirSource: what a link leads to gets the link's name, as with cp(1). Owners' numbers are kept
// where it was asked for, and are root's otherwise.
func TestCopiesToGuestsAreNamedForTheirSource(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "real"), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "real", "f"), []byte("text"), 0o600))
	must(t, os.Symlink("real", filepath.Join(dir, "link")))
	for _, c := range []struct {
		src, dst string
		o        CopyOptions
		there    uint32 // what is at dst
		into     string
		names    []string
	}{
		{"real", "/d", CopyOptions{}, aDirectory, "/d", []string{"real", "real/f"}},
		{"real", "/d", CopyOptions{}, 0, "/", []string{"d", "d/f"}},
		{"real/.", "/d", CopyOptions{}, aDirectory, "/d", []string{".", "f"}},
		{"real/f", "/d", CopyOptions{KeepOwner: true}, aFile, "/", []string{"d"}},
		{"link", "/d", CopyOptions{}, aDirectory, "/d", []string{"link"}},
		{"link", "/d", CopyOptions{Follow: true}, aDirectory, "/d", []string{"link", "link/f"}},
		{"link/", "/d", CopyOptions{}, aDirectory, "/d", []string{"link", "link/f"}},
		{"link/.", "/d", CopyOptions{KeepOwner: true}, aDirectory, "/d", []string{".", "f"}},
		{"link/f", "/d/", CopyOptions{Follow: true}, aDirectory, "/d/", []string{"f"}},
	} {
		g := &fileGuest{mode: c.there}
		_, err := sandboxOf(t, g).CopyTo(t.Context(), dir+"/"+c.src, c.dst, c.o)
		var names []string
		for in := tar.NewReader(bytes.NewReader(g.came)); ; {
			h, err := in.Next()
			if err != nil {
				break
			}
			names = append(names, path.Clean(h.Name))
		}
		asked := []any{askedStat{path.Clean(c.dst), true}, askedUnpack{c.into, c.o.KeepOwner}}
		if err != nil || !reflect.DeepEqual(names, c.names) || !reflect.DeepEqual(g.asked, asked) {
			t.Errorf("%+v: sent %q, asked %+v, %v", c, names, g.asked, err)
		}
	}
}

// TestBrokenSourcesEndNoArchive: a guest takes the end of what comes for the end of the archive, and keeps half of the files.
// The twin is a file that changes, whose archive is whole.
func TestBrokenSourcesEndNoArchive(t *testing.T) {
	t.Parallel()
	for src, want := range map[string]error{"/proc/self/mem": unix.EIO, "/proc/self/pagemap": tartree.ErrChanged} {
		if _, err := os.Stat(src); err != nil {
			t.Skip(err)
		}
		g := &fileGuest{mode: aDirectory}
		s := sandboxOf(t, g)
		_, err := s.CopyTo(t.Context(), src, "/d", CopyOptions{})
		must(t, s.client.Close())                                             // so that the call has ended in the guest
		if !errors.Is(err, want) || g.ended != (want == tartree.ErrChanged) { //nolint:errorlint // one of the two above
			t.Errorf("%s: %v, the guest has all: %t", src, err, g.ended)
		}
	}
}

// TestGuestsThatTakeNoMoreEndTheCopy: nobody reads the rest of what is packed.
func TestGuestsThatTakeNoMoreEndTheCopy(t *testing.T) {
	t.Parallel()
	src := filepath.Join(t.TempDir(), "f")
	must(t, os.WriteFile(src, make([]byte, 8<<20), 0o600))
	if _, err := sandboxOf(t, &fileGuest{mode: aDirectory, full: true}).CopyTo(t.Context(), src, "/d", CopyOptions{}); !errors.Is(err, unix.ENOSPC) {
		t.Error(err)
	}
}

// TestI14_CopiesFromGuestsReplaceNoLink: the guest may have made it, in a directory that it writes to.
func TestI14_CopiesFromGuestsReplaceNoLink(t *testing.T) {
	t.Parallel()
	dir := writeTree(t, map[string]string{"file": "mine"})
	link := filepath.Join(dir, "link")
	must(t, os.Symlink("file", link))
	g := &fileGuest{mode: aFile, archive: entries(t, tar.Header{Name: "x", Typeflag: tar.TypeReg}), report: &agentpb.TreeReport{}}
	if _, err := sandboxOf(t, g).CopyFrom(t.Context(), "/x", link, CopyOptions{}); !errors.Is(err, ErrCopy) {
		t.Errorf("%v, want ErrCopy", err)
	}
	to, err := os.Readlink(link)
	b, readErr := os.ReadFile(filepath.Join(dir, "file"))
	if to != "file" || string(b) != "mine" {
		t.Errorf("the link leads to %q (%v), and the file has %q (%v)", to, err, b, readErr)
	}
}

// TestI12_CopiesNameWhatIsMissing, and send nothing.
func TestI12_CopiesNameWhatIsMissing(t *testing.T) {
	t.Parallel()
	dir := writeTree(t, map[string]string{"f": "text"})
	nowhere := filepath.Join(dir, "nosuch", "x")
	for what, c := range map[string]struct {
		guest fileGuest
		do    func(*Sandbox) (CopyReport, error)
		want  error
		asked int
	}{
		"no source here":         {fileGuest{mode: aDirectory}, func(s *Sandbox) (CopyReport, error) { return s.CopyTo(t.Context(), nowhere, "/d", CopyOptions{}) }, ErrCopy, 0},
		"no directory here":      {fileGuest{mode: aFile}, func(s *Sandbox) (CopyReport, error) { return s.CopyFrom(t.Context(), "/f", nowhere, CopyOptions{}) }, ErrCopy, 1},
		"no source in the guest": {fileGuest{}, func(s *Sandbox) (CopyReport, error) { return s.CopyFrom(t.Context(), "/f", dir, CopyOptions{}) }, fs.ErrNotExist, 1},
		"nobody knows what is there": {fileGuest{refuses: unix.EACCES}, func(s *Sandbox) (CopyReport, error) {
			return s.CopyTo(t.Context(), filepath.Join(dir, "f"), "/d", CopyOptions{})
		}, fs.ErrPermission, 1},
	} {
		_, err := c.do(sandboxOf(t, &c.guest))
		if !errors.Is(err, c.want) || len(c.guest.asked) != c.asked || c.want == ErrCopy && !strings.Contains(err.Error(), "nosuch") { //nolint:errorlint // one of those above
			t.Errorf("%s: %v, want %v; asked %+v", what, err, c.want, c.guest.asked)
		}
	}
}
