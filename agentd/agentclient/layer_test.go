package agentclient

import (
	"errors"
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/msb-project/msb/agentd/agentpb"
)

// fakeLayer is a guest that says what a test says of a layer.
type fakeLayer struct {
	agentpb.UnimplementedDirectoriesServer
	messages []*agentpb.ChangesResponse
	repeat   int
}

func (f *fakeLayer) Changes(_ *agentpb.ChangesRequest, s grpc.ServerStreamingServer[agentpb.ChangesResponse]) error {
	for range max(f.repeat, 1) {
		for _, m := range f.messages {
			if err := s.Send(m); err != nil {
				return err
			}
		}
	}
	return nil
}

func dialLayer(t *testing.T, f *fakeLayer) *Client {
	t.Helper()
	host, guest := net.Pipe()
	l := &pipeListener{conns: make(chan net.Conn, 1), done: make(chan struct{})}
	l.conns <- guest
	srv := grpc.NewServer()
	agentpb.RegisterAgentServer(srv, &fakeAgent{})
	agentpb.RegisterDirectoriesServer(srv, f)
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

func changed(entries ...*agentpb.LayerEntry) []*agentpb.ChangesResponse {
	return []*agentpb.ChangesResponse{{Entries: entries}}
}

func TestI14_ImpossibleNamesEndTheSession(t *testing.T) {
	t.Parallel()
	for what, m := range map[string]*agentpb.LayerEntry{
		"no name": {}, "dot": {Path: []byte("a/.")}, "dots": {Path: []byte("a/../../b")}, "above": {Path: []byte("../a")}, "absolute": {Path: []byte("/etc/passwd")}, "empty": {Path: []byte("a//b")}, "slash": {Path: []byte("a/")}, "NUL": {Path: []byte("a\x00")},
		"long name": {Path: []byte(strings.Repeat("n", 256))}, "long path": {Path: []byte(strings.Repeat("n/", 2100) + "n")}, "target": {Path: []byte("l"), Target: []byte(strings.Repeat("t", 4097))}, "size": {Path: []byte("f"), Size: -1},
	} {
		c := dialLayer(t, &fakeLayer{messages: changed(&agentpb.LayerEntry{Path: []byte("good")}, m)})
		if _, err := c.Changes(t.Context(), "/work"); !errors.Is(err, ErrProtocol) || !errors.Is(c.Err(), ErrProtocol) {
			t.Errorf("%s: %v, and the session %v", what, err, c.Err())
		}
	}
	c := dialLayer(t, &fakeLayer{messages: append(changed(&agentpb.LayerEntry{Path: []byte("dir/f"), Mode: 0o104755, Size: 3}), &agentpb.ChangesResponse{Omitted: 2})})
	l, err := c.Changes(t.Context(), "/work")
	if err != nil || len(l.Entries) != 1 || l.Entries[0].Path != "dir/f" || l.Omitted != 2 {
		t.Errorf("%+v, %v", l, err)
	}
}

func TestI11_ListsOfChangesAreBounded(t *testing.T) {
	t.Parallel()
	many := make([]*agentpb.LayerEntry, 8<<10)
	for i := range many {
		many[i] = &agentpb.LayerEntry{Path: []byte("f")}
	}
	for what, f := range map[string]*fakeLayer{
		"files": {messages: changed(many...), repeat: 1 << 20},
		"names": {messages: changed(&agentpb.LayerEntry{Path: []byte("l"), Target: []byte(strings.Repeat("t", 4096))}), repeat: 1 << 20},
	} {
		c := dialLayer(t, f)
		if _, err := c.Changes(t.Context(), "/work"); !errors.Is(err, errManyChanges) || c.Err() != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}
