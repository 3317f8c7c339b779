package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"github.com/msb-project/msb/agentd/agentpb"
	"github.com/msb-project/msb/image"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// layerGuest is a guest with one directory that is copied on write, at a path. Every regular file of its layer has the text.
type layerGuest struct {
	agentpb.UnimplementedDirectoriesServer
	at    string
	layer *agentpb.ChangesResponse
	text  string
}

func (g *layerGuest) Changes(r *agentpb.ChangesRequest, s grpc.ServerStreamingServer[agentpb.ChangesResponse]) error {
	if r.GetPath() != g.at {
		return refusal("changes", r.GetPath(), unix.ENOENT)
	}
	return s.Send(g.layer)
}

func (g *layerGuest) ReadChanged(r *agentpb.ReadChangedRequest, s grpc.ServerStreamingServer[agentpb.ReadChangedResponse]) error {
	if r.GetPath() != g.at {
		return refusal("read", r.GetPath(), unix.ENOENT)
	}
	return s.Send(&agentpb.ReadChangedResponse{Data: []byte(g.text)})
}

// layered is a session with the sandbox n, which is made with cfg and whose guest is g.
func layered(t *testing.T, cfg Config, found *state.Credentials, g *layerGuest) *Sandbox {
	t.Helper()
	h := newHome(t)
	cfg.Name, cfg.Disk = "n", 64<<20
	must(t, cfg.fill())
	st := newStored("n", &cfg, &image.Image{Digest: "sha256:0"}, &Admission{})
	st.Credentials = found
	lock, err := makeNamed(h, st)
	must(t, err)
	must(t, lock.Close())
	s := sandboxServedBy(t, func(srv *grpc.Server) { agentpb.RegisterDirectoriesServer(srv, g) })
	s.name, s.home, s.run = "n", h, &runDir{id: "n", dir: namedPath(h, "n")}
	return s
}

// theChanges are those of the one directory that is copied on write.
func theChanges(t *testing.T, s *Sandbox) *ChangedDirectory {
	t.Helper()
	all, err := s.Changes(t.Context())
	must(t, err)
	if len(all) != 1 {
		t.Fatalf("%d directories, want 1", len(all))
	}
	t.Cleanup(func() { _ = all[0].Close() })
	return all[0]
}

// TestI14_ChangesAreAppliedAsFarAsAllowed: a refusal is overridden by its own name alone, and a final one by nothing. What
// was applied is what the guest was shown from then on.
func TestI14_ChangesAreAppliedAsFarAsAllowed(t *testing.T) {
	t.Parallel()
	dir := writeTree(t, map[string]string{"a": "the host's", "policy/p": "version = 1\n", "hidden": "x"})
	plain := func(path string) *agentpb.LayerEntry {
		return &agentpb.LayerEntry{Path: []byte(path), Mode: aFile, Size: int64(len("the guest's"))}
	}
	g := &layerGuest{at: "/work", text: "the guest's", layer: &agentpb.ChangesResponse{Omitted: 3, Entries: []*agentpb.LayerEntry{
		plain("a"), plain(".envrc"), plain("hidden"), {Path: []byte("policy"), Mode: aDirectory}, plain("policy/p"),
	}}}
	s := layered(t, Config{
		PolicyFile: filepath.Join(dir, "policy/p"), Policy: policies.Default(), Hide: []string{"hidden"},
		Directories: []Directory{{Host: t.TempDir(), Guest: "/other"}, {Host: dir, Guest: "/work", CopyOnWrite: true}},
	}, nil, g)
	d := theChanges(t, s)
	if d.Guest != "/work" || d.Host != dir || d.Omitted != 3 {
		t.Errorf("%+v, %d omitted", d.Directory, d.Omitted)
	}
	all := []string{"changed", "direnv", "confines", "hidden"}
	for _, c := range []struct {
		path  string
		allow []string
		done  bool
	}{
		{"a", nil, false},
		{"a", []string{"direnv"}, false},
		{"a", []string{"changed"}, true},
		{".envrc", []string{"changed"}, false},
		{".envrc", all, true},
		{"policy/p", all, false},
		{"hidden", all, false},
	} {
		i := slices.IndexFunc(d.Changes, func(ch Change) bool { return ch.Path == c.path })
		if i < 0 {
			t.Fatalf("%s is not among %+v", c.path, d.Changes)
		}
		if err := d.Apply(t.Context(), &d.Changes[i], c.allow); (err == nil) != c.done || err != nil && !errors.Is(err, ErrChangeRefused) {
			t.Errorf("%s, allowed %q: %v, want done %t", c.path, c.allow, err, c.done)
		}
		b, _ := os.ReadFile(filepath.Join(dir, c.path))
		if (string(b) == g.text) != c.done {
			t.Errorf("%s, allowed %q, has %q", c.path, c.allow, b)
		}
	}
	g.text = "its second"
	g.layer.Entries = []*agentpb.LayerEntry{{Path: []byte("a"), Mode: aFile, Size: int64(len(g.text))}}
	d = theChanges(t, s)
	if len(d.Changes) != 1 || len(d.Changes[0].Refusals) > 0 {
		t.Errorf("behind what was applied: %+v", d.Changes)
	}
	must(t, d.Apply(t.Context(), &d.Changes[0], nil))
}

// TestI11_AppliedChangesFillNoDisk: a sparse file costs the guest nothing.
func TestI11_AppliedChangesFillNoDisk(t *testing.T) {
	t.Parallel()
	g := &layerGuest{at: "/work", layer: &agentpb.ChangesResponse{Entries: []*agentpb.LayerEntry{{Path: []byte("sparse"), Mode: aFile, Size: 1 << 40}}}}
	d := theChanges(t, layered(t, Config{Directories: []Directory{{Host: aRoomOf1MiB(t), Guest: "/work", CopyOnWrite: true}}}, nil, g))
	if err := d.Apply(t.Context(), &d.Changes[0], nil); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("%v, want ENOSPC", err)
	}
}

// TestI11_RefusedChangesLeaveNothingOpen: the guest has changes of the first directory, and refuses those of the second.
func TestI11_RefusedChangesLeaveNothingOpen(t *testing.T) {
	t.Parallel()
	first := realPath(t.TempDir())
	g := &layerGuest{at: "/work", layer: &agentpb.ChangesResponse{}}
	s := layered(t, Config{Directories: []Directory{{Host: first, Guest: "/work", CopyOnWrite: true}, {Host: t.TempDir(), Guest: "/other", CopyOnWrite: true}}}, nil, g)
	if all, err := s.Changes(t.Context()); !errors.Is(err, syscall.ENOENT) && !errors.Is(err, os.ErrNotExist) || len(all) > 0 {
		t.Errorf("%v, %v", all, err)
	}
	files, err := filepath.Glob("/proc/self/fd/*")
	must(t, err)
	for _, file := range files {
		if to, err := os.Readlink(file); err == nil && to == first {
			t.Errorf("%s is open", to)
		}
	}
}

// TestSandboxesWithoutCopiesHaveNoChanges, and those without a name keep none.
func TestSandboxesWithoutCopiesHaveNoChanges(t *testing.T) {
	t.Parallel()
	s := layered(t, Config{Directories: []Directory{{Host: t.TempDir(), Guest: "/work"}}}, nil, &layerGuest{at: "/work"})
	if all, err := s.Changes(t.Context()); !errors.Is(err, ErrNoChanges) || len(all) > 0 {
		t.Errorf("%v, %v; want ErrNoChanges", all, err)
	}
	s.name = ""
	if all, err := s.Changes(t.Context()); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "Name") || len(all) > 0 {
		t.Errorf("without a name: %v, %v; want ErrConfig", all, err)
	}
}
