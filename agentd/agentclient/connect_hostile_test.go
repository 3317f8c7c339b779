package agentclient

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"

	"google.golang.org/grpc"

	"github.com/msb-project/msb/agentd/agentpb"
)

// fakeConnections answers a connection with these messages, and ends it.
type fakeConnections struct {
	agentpb.UnimplementedConnectionsServer
	say []*agentpb.ConnectResponse
}

func (f *fakeConnections) Connect(s grpc.BidiStreamingServer[agentpb.ConnectRequest, agentpb.ConnectResponse]) error {
	for _, m := range f.say {
		if err := s.Send(m); err != nil {
			return err
		}
	}
	return nil
}

func dialConnections(t *testing.T, f *fakeConnections) *Client {
	t.Helper()
	host, guest := net.Pipe()
	l := &pipeListener{conns: make(chan net.Conn, 1), done: make(chan struct{})}
	l.conns <- guest
	srv := grpc.NewServer()
	agentpb.RegisterAgentServer(srv, &fakeAgent{})
	agentpb.RegisterConnectionsServer(srv, f)
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

// TestI12_BrokenConnectionsEndTheSession: a connection begins once and says when it has ended.
func TestI12_BrokenConnectionsEndTheSession(t *testing.T) {
	t.Parallel()
	connected := &agentpb.ConnectResponse{Response: &agentpb.ConnectResponse_Connected{Connected: &agentpb.Connected{}}}
	data := &agentpb.ConnectResponse{Response: &agentpb.ConnectResponse_Data{Data: []byte("x")}}
	eof := &agentpb.ConnectResponse{Response: &agentpb.ConnectResponse_Eof{Eof: &agentpb.ConnectEOF{}}}
	for what, c := range map[string]struct {
		say  []*agentpb.ConnectResponse
		want error
	}{
		"data first": {[]*agentpb.ConnectResponse{data, connected, eof}, ErrProtocol}, "end first": {[]*agentpb.ConnectResponse{eof}, ErrProtocol},
		"empty first": {[]*agentpb.ConnectResponse{{}}, ErrProtocol}, "begun twice": {[]*agentpb.ConnectResponse{connected, connected, eof}, ErrProtocol},
		"no end": {[]*agentpb.ConnectResponse{connected, data}, ErrProtocol}, "nothing": {nil, ErrProtocol},
		"good": {[]*agentpb.ConnectResponse{connected, data, {}, data, eof}, nil},
	} {
		client := dialConnections(t, &fakeConnections{say: c.say})
		conn, err := client.Connect(t.Context(), netip.MustParseAddrPort("127.0.0.1:80"))
		var got []byte
		if err == nil {
			got, err = io.ReadAll(conn)
			conn.Close()
		}
		if !errors.Is(err, c.want) || c.want == nil && string(got) != "xx" {
			t.Errorf("%s: %q, %v", what, got, err)
		}
		if !errors.Is(client.Err(), c.want) {
			t.Errorf("%s: the session: %v", what, client.Err())
		}
	}
}
