package secretproxy

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/policies"
)

// greeter is a gRPC service without generated code: it greets once, or everybody in a stream. Whoever does
// not show the secret's value is refused.
type greeter struct{}

// admit looks for the value in the metadata, and repeats it where metadata goes back.
func (greeter) admit(ctx context.Context) (metadata.MD, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	if got := md.Get("x-api-key"); len(got) != 1 || got[0] != realValue {
		return nil, status.Error(codes.Unauthenticated, "no value")
	}
	return metadata.Pairs("x-repeated", realValue), nil
}

func (g greeter) once(ctx context.Context, name string) (*wrapperspb.StringValue, error) {
	repeated, err := g.admit(ctx)
	if err != nil {
		return nil, err
	}
	_ = grpc.SetHeader(ctx, repeated)
	_ = grpc.SetTrailer(ctx, repeated)
	if name == "nobody" {
		return nil, status.Error(codes.NotFound, "no one like "+realValue)
	}
	return wrapperspb.String("hello " + name), nil
}

func (g greeter) everybody(s grpc.ServerStream) error {
	repeated, err := g.admit(s.Context())
	if err != nil {
		return err
	}
	s.SetTrailer(repeated)
	for {
		var name wrapperspb.StringValue
		if err := s.RecvMsg(&name); err != nil {
			if err == io.EOF { //nolint:errorlint // RecvMsg returns it as it is
				return nil
			}
			return err
		}
		if err := s.SendMsg(wrapperspb.String("hello " + name.Value)); err != nil {
			return err
		}
	}
}

const (
	callOnce      = "/test.Greeter/Once"
	callEverybody = "/test.Greeter/Everybody"
)

func greeterService() *grpc.ServiceDesc {
	return &grpc.ServiceDesc{
		ServiceName: "test.Greeter",
		HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "Once", Handler: func(srv any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			var name wrapperspb.StringValue
			if err := decode(&name); err != nil {
				return nil, err
			}
			return srv.(greeter).once(ctx, name.Value)
		}}},
		Streams: []grpc.StreamDesc{{StreamName: "Everybody", ServerStreams: true, ClientStreams: true, Handler: func(srv any, s grpc.ServerStream) error {
			return srv.(greeter).everybody(s)
		}}},
	}
}

// grpcThrough starts a gRPC server behind the proxy and returns a guest's client of it.
func grpcThrough(t *testing.T) (*world, *grpc.ClientConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, echo, withSecret(secretIn(t, header("X-Api-Key"))), func(_ *policies.Policy, c *Config) {
		c.Dial = func(ctx context.Context, _ hostname.Name, _ netip.AddrPort) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", l.Addr().String())
		}
	})
	leaf, err := w.public.authority.ForName(hostname.MustParse(apiHost))
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.Creds(credentials.NewServerTLSFromCert(leaf)))
	server.RegisterService(greeterService(), greeter{})
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Errorf("the gRPC server: %v", err)
		}
	})
	client, err := grpc.NewClient("passthrough:///"+apiHost+":443", grpc.WithNoProxy(),
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: w.root, ServerName: apiHost, MinVersion: tls.VersionTLS12})),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return w.pipe(flow(apiHost, apiAddr), false), nil }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return w, client
}

// repeated fails the test unless md has the placeholder where the server put the value.
func repeated(t *testing.T, w *world, where string, md metadata.MD) {
	t.Helper()
	if got := md.Get("x-repeated"); len(got) != 1 || got[0] != w.placeholder() {
		t.Errorf("%s: the guest got %q, want the placeholder", where, got)
	}
}

func TestGRPCCallsKeepTheirTrailers(t *testing.T) {
	t.Parallel()
	w, client := grpcThrough(t)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	ctx = metadata.AppendToOutgoingContext(ctx, "x-api-key", w.placeholder())
	for name, want := range map[string]*status.Status{
		"you":    status.New(codes.OK, ""),
		"nobody": status.New(codes.NotFound, "no one like "+w.placeholder()),
	} {
		var greeting wrapperspb.StringValue
		var head, trailer metadata.MD
		err := client.Invoke(ctx, callOnce, wrapperspb.String(name), &greeting, grpc.Header(&head), grpc.Trailer(&trailer))
		if got := status.Convert(err); got.Code() != want.Code() || got.Message() != want.Message() {
			t.Errorf("%s: got %v %q, want %v %q", name, got.Code(), got.Message(), want.Code(), want.Message())
		}
		if err == nil && greeting.Value != "hello "+name {
			t.Errorf("got %q", greeting.Value)
		}
		if err == nil {
			repeated(t, w, "header", head)
		}
		repeated(t, w, "trailer", trailer)
	}
}

func TestGRPCStreamsAreFullDuplex(t *testing.T) {
	t.Parallel()
	w, client := grpcThrough(t)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	ctx = metadata.AppendToOutgoingContext(ctx, "x-api-key", w.placeholder())
	s, err := client.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, callEverybody)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"you", "and", "them"} { // each waits for the answer to the one before it
		if err := s.SendMsg(wrapperspb.String(name)); err != nil {
			t.Fatal(err)
		}
		var greeting wrapperspb.StringValue
		if err := s.RecvMsg(&greeting); err != nil || greeting.Value != "hello "+name {
			t.Fatalf("got %q, %v; want hello %s", greeting.Value, err, name)
		}
	}
	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if err := s.RecvMsg(new(wrapperspb.StringValue)); err != io.EOF { //nolint:errorlint // RecvMsg returns it as it is
		t.Errorf("after the guest's end: %v, want EOF", err)
	}
	repeated(t, w, "trailer", s.Trailer())
}
