package agentclient

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"net"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msb-project/msb/agentd/agentpb"
)

// fakeFiles is a guest that answers what a test says.
type fakeFiles struct {
	agentpb.UnimplementedFilesServer
	list  []*agentpb.FileInfo
	again int // how often it is sent once more
	fail  error
	parts []*agentpb.PackResponse
	watch []*agentpb.WatchResponse
}

func (f *fakeFiles) List(_ *agentpb.ListRequest, s grpc.ServerStreamingServer[agentpb.ListResponse]) error {
	if f.fail != nil {
		return f.fail
	}
	for range f.again {
		if err := s.Send(&agentpb.ListResponse{Entries: f.list}); err != nil {
			return err
		}
	}
	return s.Send(&agentpb.ListResponse{Entries: f.list})
}

func (f *fakeFiles) Pack(_ *agentpb.PackRequest, s grpc.ServerStreamingServer[agentpb.PackResponse]) error {
	for _, p := range f.parts {
		if err := s.Send(p); err != nil {
			return err
		}
	}
	return nil
}

func (f *fakeFiles) Watch(_ *agentpb.WatchRequest, s grpc.ServerStreamingServer[agentpb.WatchResponse]) error {
	for _, m := range f.watch {
		if err := s.Send(m); err != nil {
			return err
		}
	}
	<-s.Context().Done()
	return nil
}

func dialFiles(t testing.TB, f agentpb.FilesServer) *Client {
	t.Helper()
	host, guest := net.Pipe()
	l := &pipeListener{conns: make(chan net.Conn, 1), done: make(chan struct{})}
	l.conns <- guest
	srv := grpc.NewServer(grpc.MaxSendMsgSize(8 << 20))
	agentpb.RegisterAgentServer(srv, &fakeAgent{})
	agentpb.RegisterFilesServer(srv, f)
	served := make(chan struct{})
	go func() { defer close(served); _ = srv.Serve(l) }()
	t.Cleanup(func() { close(l.done); srv.Stop(); <-served })
	c, err := Dial(t.Context(), host, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestI12_ImpossibleFilesEndTheSession(t *testing.T) {
	t.Parallel()
	for what, m := range map[string]*agentpb.FileInfo{
		"no name": {}, "dot": {Name: []byte(".")}, "dots": {Name: []byte("..")}, "slash": {Name: []byte("a/b")}, "NUL": {Name: []byte("a\x00")},
		"long": {Name: bytes.Repeat([]byte("n"), 256)}, "target": {Name: []byte("l"), Target: bytes.Repeat([]byte("t"), 4097)}, "size": {Name: []byte("f"), Size: -1},
	} {
		c := dialFiles(t, &fakeFiles{list: []*agentpb.FileInfo{{Name: []byte("good")}, m}})
		if _, err := c.Files().ReadDir(t.Context(), "/"); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: got %v", what, err)
		}
		if !errors.Is(c.Err(), ErrProtocol) {
			t.Errorf("%s: the session goes on: %v", what, c.Err())
		}
	}
}

// TestI11_ListingsAreBounded: a guest gives every entry the longest link there is. The twin is as many entries without links.
func TestI11_ListingsAreBounded(t *testing.T) {
	t.Parallel()
	for _, target := range []int{maxTargetBytes, 0} {
		f := &fakeFiles{again: maxEntryBytes / maxTargetBytes / 200}
		for range 200 {
			f.list = append(f.list, &agentpb.FileInfo{Name: []byte("l"), Target: bytes.Repeat([]byte("t"), target)})
		}
		got, err := dialFiles(t, f).Files().ReadDir(t.Context(), "/")
		if bounded := errors.Is(err, errTooLarge); bounded != (target > 0) || !bounded && (err != nil || len(got) != 200*(f.again+1)) {
			t.Errorf("links of %d bytes: %d entries, %v", target, len(got), err)
		}
	}
}

func TestI12_ArchivesNeedTheirEnd(t *testing.T) {
	t.Parallel()
	data, end := &agentpb.PackResponse{Data: []byte("x")}, &agentpb.PackResponse{Report: &agentpb.TreeReport{Skipped: make([]string, 1000)}}
	for what, c := range map[string]struct {
		parts []*agentpb.PackResponse
		want  error
	}{
		"cut off": {[]*agentpb.PackResponse{data}, ErrProtocol}, "nothing": {nil, ErrProtocol},
		"more behind": {[]*agentpb.PackResponse{data, end, data}, ErrProtocol}, "end twice": {[]*agentpb.PackResponse{data, end, end}, ErrProtocol}, "good": {[]*agentpb.PackResponse{data, end}, nil},
	} {
		a, err := dialFiles(t, &fakeFiles{parts: c.parts}).Files().Pack(t.Context(), "/x", "", false)
		if err == nil {
			_, err = io.ReadAll(a)
			if n := len(a.Report().Skipped); n > maxReportNames {
				t.Errorf("%s: %d names", what, n)
			}
			a.Close()
		}
		if !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", what, err, c.want)
		}
	}
}

func TestI12_FileErrorsAreMadeSafe(t *testing.T) {
	t.Parallel()
	refusal := func(errno uint32) error {
		st, err := status.New(codes.InvalidArgument, "\x1b[2J").WithDetails(&agentpb.FileError{Errno: errno, Op: "o\x1b", Path: "/p\u202e\u2067" + strings.Repeat("p", 5000)})
		if err != nil {
			t.Fatal(err)
		}
		return st.Err()
	}
	_, err := dialFiles(t, &fakeFiles{fail: refusal(uint32(syscall.ENOENT))}).Files().ReadDir(t.Context(), "/")
	if !errors.Is(err, fs.ErrNotExist) || len(err.Error()) > 1000 || strings.ContainsAny(err.Error(), "\x1b\u202e\u2067") {
		t.Errorf("got %q", err)
	}
	for _, errno := range []uint32{0, 134, 1 << 31} {
		if _, err := dialFiles(t, &fakeFiles{fail: refusal(errno)}).Files().ReadDir(t.Context(), "/"); !errors.Is(err, ErrRefused) || strings.Contains(err.Error(), "\x1b") {
			t.Errorf("errno %d: got %q", errno, err)
		}
	}
}

func TestI12_ImpossibleEventsEndTheSession(t *testing.T) {
	t.Parallel()
	for what, e := range map[string]*agentpb.WatchEvent{
		"no path": {Kind: 1}, "relative": {Kind: 1, Path: []byte("a")}, "long": {Kind: 1, Path: []byte("/" + strings.Repeat("p", 5000))},
		"no kind": {Path: []byte("/a")}, "new kind": {Kind: 99, Path: []byte("/a")}, "negative": {Kind: -1, Path: []byte("/a")},
	} {
		c := dialFiles(t, &fakeFiles{watch: []*agentpb.WatchResponse{{}, {Events: []*agentpb.WatchEvent{e}}}})
		if err := c.Files().Watch(t.Context(), "/", false, nil, func(Event) { t.Errorf("%s: reported", what) }); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: got %v", what, err)
		}
	}
}
