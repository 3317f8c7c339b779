package secretproxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	_ "google.golang.org/grpc/encoding/gzip" // registers the compressor
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/policies"
)

// tellerService says the value to whoever asks, once or in a stream.
func tellerService() *grpc.ServiceDesc {
	return &grpc.ServiceDesc{
		ServiceName: "test.Teller", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "Tell", Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			var in wrapperspb.StringValue
			return wrapperspb.String("it is " + realValue), decode(&in)
		}}},
		Streams: []grpc.StreamDesc{{StreamName: "Keep", ServerStreams: true, ClientStreams: true, Handler: func(_ any, s grpc.ServerStream) error {
			for {
				var in wrapperspb.StringValue
				if err := s.RecvMsg(&in); err != nil {
					return nil //nolint:nilerr // the client's end
				}
				if err := s.SendMsg(wrapperspb.String(in.Value + " is " + realValue)); err != nil {
					return err
				}
			}
		}}},
	}
}

// tellerThrough returns a guest's client of the teller.
func tellerThrough(t *testing.T, options ...option) (*world, *grpc.ClientConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, echo, append(options, func(_ *policies.Policy, c *Config) {
		c.Dial = func(ctx context.Context, _ hostname.Name, _ netip.AddrPort) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", l.Addr().String())
		}
	})...)
	leaf, err := w.public.authority.ForName(hostname.MustParse(apiHost))
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.Creds(credentials.NewServerTLSFromCert(leaf)))
	server.RegisterService(tellerService(), nil)
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

// tell has the teller say the value in a call and in a stream of two messages.
func tell(t *testing.T, client *grpc.ClientConn, o ...grpc.CallOption) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var once, kept wrapperspb.StringValue
	if err := client.Invoke(ctx, "/test.Teller/Tell", wrapperspb.String(strings.Repeat("x", 500)), &once, o...); err != nil {
		t.Fatal(err)
	}
	s, err := client.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/test.Teller/Keep", o...)
	if err != nil {
		t.Fatal(err)
	}
	said := once.Value
	for range 2 { // each waits for the answer to the one before it
		if err := s.SendMsg(wrapperspb.String("again")); err != nil {
			t.Fatal(err)
		}
		if err := s.RecvMsg(&kept); err != nil {
			t.Fatal(err)
		}
		said += "; " + kept.Value
	}
	_ = s.CloseSend()
	return said
}

// TestI10_CompressedMessagesAreMasked: a gRPC client may choose how messages are compressed, its answers'
// too. Without a secret in the policy the same client reads the value.
func TestI10_CompressedMessagesAreMasked(t *testing.T) {
	t.Parallel()
	for _, o := range [][]grpc.CallOption{nil, {grpc.UseCompressor("gzip")}} {
		secret := secretIn(t, header("X-Api-Key"))
		secret.Placeholder = "ghp_{25}" // as long as the value: protobuf counts bytes
		w, client := tellerThrough(t, withSecret(secret))
		p := w.placeholder()
		if got, want := tell(t, client, o...), "it is "+p+"; again is "+p+"; again is "+p; got != want {
			t.Errorf("%d options: the guest got %q, want %q", len(o), got, want)
		}
		_, open := tellerThrough(t)
		if got := tell(t, open, o...); strings.Count(got, realValue) != 3 {
			t.Errorf("%d options, without a secret: the guest got %q, which proves nothing", len(o), got)
		}
	}
}

// framed is a message of gRPC.
func framed(flags byte, data []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(data))), data...)
}

// TestI10_MessagesOfEveryKindAreSearched: what is compressed is either opened or refused, whatever the
// protocol calls it.
func TestI10_MessagesOfEveryKindAreSearched(t *testing.T) {
	t.Parallel()
	const refused, opened, cut = "refused", "opened", "cut"
	text := "it is " + realValue + " " + strings.Repeat("x", 3000)
	zipped := func(coding string) []byte { return framed(1, compress(t, coding, text)) }
	for i, c := range []struct {
		media, field, coding string
		body                 []byte
		want                 string
	}{
		{"application/grpc", "Grpc-Encoding", "gzip", zipped("gzip"), opened},
		{"application/grpc+proto; charset=utf-8", "Grpc-Encoding", "deflate", zipped("deflate"), opened},
		{"Application/GRPC", "Grpc-Encoding", " GZIP ", zipped("gzip"), opened},
		{"application/grpc-web+proto", "Grpc-Encoding", "gzip", zipped("gzip"), opened},
		{"application/connect+json", "Connect-Content-Encoding", "br", zipped("br"), opened},
		{"application/connect+proto", "Connect-Content-Encoding", "zstd", zipped("zstd"), opened},
		{"application/grpc", "Grpc-Encoding", "identity", framed(0, []byte(text)), opened},
		{"application/grpc", "Grpc-Encoding", "gzip", framed(0, []byte(text)), opened},
		{"application/grpc", "Grpc-Encoding", "gzip", append(framed(1, nil), zipped("gzip")...), opened},
		{"application/grpc", "", "", []byte(text), opened}, // no message at all
		{"application/grpc", "", "", append(framed(0x80, nil), text...), opened},
		{"application/grpc", "Grpc-Encoding", "snappy", zipped("gzip"), refused},
		{"application/connect+proto", "Connect-Content-Encoding", "x-own", zipped("gzip"), refused},
		{"application/grpc-web-text", "Grpc-Encoding", "gzip", []byte(base64.StdEncoding.EncodeToString(zipped("gzip"))), refused},
		{"application/octet-stream", "Grpc-Encoding", "gzip", zipped("gzip"), refused},
		{"application/grpc", "", "", zipped("gzip"), cut},
		{"application/grpc", "Grpc-Encoding", "identity", zipped("gzip"), cut},
		{"application/connect+json", "", "", append(framed(0, []byte("first")), zipped("gzip")...), cut},
		{"application/grpc", "Grpc-Encoding", "gzip", framed(1, []byte("not gzip at all")), cut},
		{"application/grpc", "Grpc-Encoding", "gzip", framed(1, compress(t, "gzip", strings.Repeat("x", maxMessage+1))), cut},
		{"application/grpc", "Grpc-Encoding", "gzip", []byte{1, 0, 0, 0, 9}, cut}, // no bytes at all is an empty message only if it says so
		{"application/grpc", "Grpc-Encoding", "gzip", []byte{1, 0xff, 0xff, 0xff, 0xff, 'x'}, cut},
	} {
		for _, known := range []bool{true, false} {
			w := wantsSecret(t, func(rw http.ResponseWriter, _ *http.Request) {
				rw.Header().Set("Content-Type", c.media)
				if c.field != "" {
					rw.Header().Set(c.field, c.coding)
				}
				if known {
					rw.Header().Set("Content-Length", fmt.Sprint(len(c.body)))
				} else {
					_ = http.NewResponseController(rw).Flush()
				}
				_, _ = rw.Write(c.body)
			})
			got, body := opened, []byte(nil)
			resp, err := w.client(apiHost, apiAddr, true).Do(request(t, "POST", "https://"+apiHost+"/", nil))
			if err != nil { // cut before its first byte
				resp = &http.Response{}
			} else {
				body, err = io.ReadAll(resp.Body)
				_ = resp.Body.Close()
			}
			switch {
			case resp.StatusCode == http.StatusBadGateway && strings.Contains(string(body), "unmaskable_encoding"):
				got = refused
			case err != nil:
				got = cut
			case !bytes.Contains(body, []byte("it is "+w.placeholder())) || resp.Header.Get(c.field) == c.coding && c.coding != "":
				got = "not opened"
			}
			if got != c.want || bytes.Contains(body, []byte(realValue)) {
				t.Errorf("case %d, length known %v: %s, want %s: status %d, %.80q, %v", i, known, got, c.want, resp.StatusCode, body, err)
			}
			if last := w.events.of("http.request"); c.want != opened && (len(last) == 0 || last[len(last)-1].Reason != "unmaskable_encoding") {
				t.Errorf("case %d, length known %v: the audit log says %+v", i, known, last)
			}
		}
	}
}

// TestMessagesGoThroughByteByByte: framing survives any cut, and nothing is waited for.
func TestMessagesGoThroughByteByByte(t *testing.T) {
	t.Parallel()
	plain := append(framed(0, []byte("hello")), framed(2, []byte("{}"))...)
	in := append(append(framed(0, []byte("hello")), framed(1, compress(t, "gzip", "packed"))...), framed(2, []byte("{}"))...)
	want := append(append(framed(0, []byte("hello")), framed(0, []byte("packed"))...), framed(2, []byte("{}"))...)
	h := http.Header{"Content-Type": {"application/grpc"}, "Grpc-Encoding": {"gzip"}}
	for size := 1; size < 20; size++ {
		pr, pw := io.Pipe()
		go func() {
			for i := range in {
				_, _ = pw.Write(in[i : i+1])
			}
			_ = pw.Close()
		}()
		r, err := decodedMessages(h.Clone(), pr, nil)
		if err != nil {
			t.Fatal(err)
		}
		var got []byte
		for buf := make([]byte, size); err == nil; {
			var n int
			n, err = r.Read(buf)
			got = append(got, buf[:n]...)
		}
		if err != io.EOF || !bytes.Equal(got, want) { //nolint:errorlint // readers return it as it is
			t.Errorf("reads of %d: got %q, %v; want %q", size, got, err, want)
		}
	}
	for cut := range plain { // a body that breaks off is the client's to judge
		r, err := decodedMessages(h.Clone(), bytes.NewReader(plain[:cut]), nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, plain[:cut]) {
			t.Errorf("cut behind %d bytes: got %q, %v", cut, got, err)
		}
	}
	pr, pw := io.Pipe()
	r, _ := decodedMessages(h, pr, nil)
	go func() { _, _ = pw.Write(plain[:7]) }() // and then silence
	got := make([]byte, 100)
	n, err := io.ReadAtLeast(r, got, 7)
	if err != nil || !bytes.Equal(got[:n], plain[:7]) {
		t.Errorf("of a message that has begun: got %q, %v", got[:n], err)
	}
	_ = pw.Close()
}

// TestI10_OtherCompressionIsNotOffered: whatever a server is offered beside Accept-Encoding, we could
// not tell what it did.
func TestI10_OtherCompressionIsNotOffered(t *testing.T) {
	t.Parallel()
	w := wantsSecret(t, echo)
	open := newWorld(t, echo)
	for _, name := range []string{"Grpc-Accept-Encoding", "Connect-Accept-Encoding", "X-Accept-Encoding", "Accept_Encoding", "Grpc-Internal-Encoding-Request", "A-IM", "x-grpc_accept_encoding"} {
		for _, http2 := range []bool{false, true} {
			ask := func(w *world) string {
				_, body := do(t, w.client(apiHost, apiAddr, http2), request(t, "GET", "https://"+apiHost+"/", nil, name, "probe-gzip"))
				return body
			}
			if got := ask(w); strings.Contains(got, "probe-gzip") {
				t.Errorf("http2 %v: %s reaches the server", http2, name)
			}
			if got := ask(open); !strings.Contains(got, "probe-gzip") {
				t.Errorf("http2 %v: %s doesn't reach the server where there is no secret", http2, name)
			}
		}
	}
}

// TestIdentityCodingsAreAccepted: and empty bodies are fine in any.
func TestIdentityCodingsAreAccepted(t *testing.T) {
	t.Parallel()
	for _, coding := range []string{"utf-8", "UTF-8", "none", "aws-chunked", "binary", "identity, none", "gzip;q=1", "aws-chunked,gzip", "gzip, identity", "br, utf-8"} {
		for _, text := range []string{realValue, ""} {
			for _, known := range []bool{true, false} {
				w := wantsSecret(t, func(rw http.ResponseWriter, _ *http.Request) {
					body := []byte(text)
					for _, real := range []string{"gzip", "br"} {
						if strings.Contains(coding, real) && text != "" {
							body = compress(t, real, text)
						}
					}
					rw.Header().Set("Content-Encoding", coding)
					if !known {
						_ = http.NewResponseController(rw).Flush()
					}
					_, _ = rw.Write(body)
				})
				resp, body := do(t, w.client(apiHost, apiAddr, true), request(t, "GET", "https://"+apiHost+"/", nil))
				if want := strings.ReplaceAll(text, realValue, w.placeholder()); resp.StatusCode != http.StatusOK || body != want {
					t.Errorf("%q, length known %v: status %d, %q; want %q", coding, known, resp.StatusCode, body, want)
				}
			}
		}
	}
}
