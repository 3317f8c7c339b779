package echo

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/msb-project/msb/internal/handoff"
)

const (
	// maxBody is how much of a body is read, and hashed: a guest can't keep the service busy for ever.
	maxBody = 64 << 20
	// headerTimeout and idleTimeout end connections that do nothing.
	headerTimeout = 10 * time.Second
	idleTimeout   = time.Minute
)

// Reply is what the service says of one request.
type Reply struct {
	Method  string              `json:"method"`
	Path    string              `json:"path"`
	Host    string              `json:"host"`
	Proto   string              `json:"proto"`
	Headers map[string][]string `json:"headers"`
	// HeaderSHA256 has the hex SHA-256 of the first value of each header as it was received.
	HeaderSHA256 map[string]string `json:"header_sha256"`
	// BodySHA256 is the hex SHA-256 of the first 64 MiB of the body, BodyBytes how many were read.
	BodySHA256 string `json:"body_sha256"`
	BodyBytes  int64  `json:"body_bytes"`
}

// Handler answers every request with its Reply.
func Handler() http.Handler { return http.HandlerFunc(serve) }

func serve(w http.ResponseWriter, r *http.Request) {
	sum := sha256.New()
	n, err := io.Copy(sum, io.LimitReader(r.Body, maxBody))
	if err != nil {
		http.Error(w, "the request's body ended early", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	_ = enc.Encode(reply(r, sum, n)) // the client may have gone: nothing to tell it
}

func reply(r *http.Request, body hash.Hash, n int64) Reply {
	out := Reply{
		Method: r.Method, Path: r.URL.Path, Host: r.Host, Proto: r.Proto,
		Headers:      r.Header,
		HeaderSHA256: make(map[string]string, len(r.Header)),
		BodySHA256:   hex.EncodeToString(body.Sum(nil)), BodyBytes: n,
	}
	for name, values := range r.Header {
		sum := sha256.Sum256([]byte(values[0]))
		out.HeaderSHA256[name] = hex.EncodeToString(sum[:])
	}
	return out
}

// Service serves connections that are made with Dial. It has no listening socket.
type Service struct {
	server *http.Server
	conns  *handoff.Listener
	done   chan struct{}
}

// Start serves HTTPS with the certificate that get returns for a client's SNI.
func Start(get func(*tls.ClientHelloInfo) (*tls.Certificate, error)) *Service {
	s := &Service{
		server: &http.Server{
			Handler:           Handler(),
			ReadHeaderTimeout: headerTimeout,
			IdleTimeout:       idleTimeout,
			ErrorLog:          discardLog(),
			TLSConfig: &tls.Config{
				MinVersion:     tls.VersionTLS12,
				GetCertificate: get,
			},
		},
		conns: handoff.New(pipeAddr{}),
		done:  make(chan struct{}),
	}

	go func() {
		defer close(s.done)
		_ = s.server.ServeTLS(s.conns, "", "") // always http.ErrServerClosed or the listener's end
	}()
	return s
}

// Dial returns the client's end of a new connection to the service.
func (s *Service) Dial(ctx context.Context) (net.Conn, error) {
	client, server := net.Pipe()
	if err := s.conns.Give(ctx, server); err != nil {
		return nil, errors.Join(fmt.Errorf("echo service: %w", err), client.Close(), server.Close())
	}
	return client, nil
}

// Close ends the service and its connections.
func (s *Service) Close() error {
	// The listener as well: a server that has not begun to serve yet does not know its listener.
	err := errors.Join(s.conns.Close(), s.server.Close())
	<-s.done
	return err
}

// pipeAddr is the address of the service.
type pipeAddr struct{}

func (pipeAddr) Network() string { return "builtin" }
func (pipeAddr) String() string  { return "builtin:echo" }
