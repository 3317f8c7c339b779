package gateway_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/msb-project/msb/gateway/gatewaytest"
)

// calls is a gRPC server that answers any method, and notes which it was called for.
type calls struct {
	mu   sync.Mutex
	seen []string
}

func (c *calls) serve(_ any, s grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(s)
	c.mu.Lock()
	c.seen = append(c.seen, method)
	c.mu.Unlock()
	s.SetTrailer(metadata.Pairs("x-called", method))
	if err := s.RecvMsg(new(emptypb.Empty)); err != nil {
		return err
	}
	return s.SendMsg(new(emptypb.Empty))
}

func (c *calls) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := c.seen
	c.seen = nil
	return seen
}

// grpcTo is a guest's client of a gRPC server. It opens one connection.
func grpcTo(t *testing.T, policy string) (*calls, *grpc.ClientConn) {
	t.Helper()
	w := gatewaytest.Start(t, policy)
	w.Record(strings.Split(frontNames, "\n")...)
	seen := &calls{}
	w.ServeHTTPS(site+":443", w.CA.Certificate("www.example.com"), grpc.NewServer(grpc.UnknownServiceHandler(seen.serve)))
	w.Resolve("www.example.com", dns.TypeA)
	tr, _ := w.Client().Transport.(*http.Transport)
	dialled := false // the client dials from one goroutine
	client, err := grpc.NewClient("passthrough:///www.example.com:443", grpc.WithNoProxy(),
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: tr.TLSClientConfig.RootCAs, ServerName: "www.example.com", MinVersion: tls.VersionTLS12})),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			if dialled {
				return nil, errors.New("the connection was not kept")
			}
			dialled = true
			return w.Dial(siteAddr, 443)
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return seen, client
}

// Each refused call comes between two that are allowed, on their connection, and ends with a status of gRPC.
func TestI7_GRPCMethodsFollowPaths(t *testing.T) {
	t.Parallel()
	const open = "/test.Greeter/Once"
	for name, rules := range map[string]string{
		"paths":             allowWWW + "methods = [\"POST\"]\npaths = [\"" + open + "\"]\n",
		"denied paths":      allowWWW + "[[egress.deny]]\nhosts = [\"www.example.com\"]\npaths = [\"/other.**\", \"/test.Greeter/Other\"]\n",
		"other methods":     allowWWW + "methods = [\"GET\"]\n",
		"no rules on paths": allowWWW + "[tls]\ninspect = \"all\"\n",
		"uninspected":       allowWWW + "[tls]\ninspect = \"none\"\n",
	} {
		for _, method := range []string{"/test.Greeter/Other", "/other.Service/Once"} {
			t.Run(name+method, func(t *testing.T) {
				t.Parallel()
				seen, client := grpcTo(t, rules)
				ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
				defer cancel()
				for _, call := range []string{open, method, open} {
					want := codes.OK
					if name == "other methods" || call == method && strings.Contains(name, "paths") && name != "no rules on paths" {
						want = codes.PermissionDenied
					}
					var trailer metadata.MD
					err := client.Invoke(ctx, call, new(emptypb.Empty), new(emptypb.Empty), grpc.Trailer(&trailer))
					if status.Code(err) != want {
						t.Errorf("%s: %v, want %s", call, err, want)
					}
					reached := seen.take()
					if (want == codes.OK) != slices.Equal(reached, []string{call}) || want != codes.OK && len(reached) > 0 {
						t.Errorf("%s: the server was called for %v", call, reached)
					}
					if want == codes.OK && !slices.Equal(trailer.Get("x-called"), []string{call}) {
						t.Errorf("%s: trailers %v", call, trailer)
					}
				}
			})
		}
	}
}
