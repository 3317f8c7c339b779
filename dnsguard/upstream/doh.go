package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"

	"github.com/miekg/dns"

	"github.com/msb-project/msb/dnsguard/wire"
	"github.com/msb-project/msb/policies"
)

// dohType is the media type of DNS messages over HTTPS (RFC 8484, section 6).
const dohType = "application/dns-message"

// httpsServer is DNS over HTTPS. If its URL holds a name, the host's resolver
// finds the server: that name is the operator's, no guest has a say in it.
type httpsServer struct {
	url    string
	client *http.Client
}

var _ server = (*httpsServer)(nil)

func newHTTPSServer(s policies.Server, opts Options) *httpsServer {
	dial := opts.Dial
	transport := &http.Transport{
		Proxy:                  nil, // the host's proxy environment is not the policy
		DialContext:            dial,
		TLSClientConfig:        opts.tlsConfig(s.ServerName.String()),
		ForceAttemptHTTP2:      true,
		MaxConnsPerHost:        maxIdleConns,
		MaxIdleConnsPerHost:    maxIdleConns,
		IdleConnTimeout:        idleConnAge,
		TLSHandshakeTimeout:    attemptTimeout,
		ResponseHeaderTimeout:  attemptTimeout,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: 16 << 10,
		DisableCompression:     true,
	}
	return &httpsServer{
		url: s.URL,
		client: &http.Client{
			Transport: transport,
			// A redirect would take the questions to a server that the
			// operator didn't name.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// String returns the URL.
func (s *httpsServer) String() string { return s.url }

func (s *httpsServer) closeIdle() { s.client.CloseIdleConnections() }

func (s *httpsServer) exchange(ctx context.Context, q Query) (*dns.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	query, err := q.sent(true)
	if err != nil {
		return nil, err
	}
	query[0], query[1] = 0, 0 // RFC 8484, section 4.1
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(query))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", dohType)
	req.Header.Set("Accept", dohType)
	req.Header.Set("User-Agent", "") // none: there is no need to be known
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the server answers with HTTP status %d", resp.StatusCode)
	}
	if media, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type")); err != nil || media != dohType {
		return nil, errors.New("the server answers with something else than a DNS message")
	}
	answer, err := io.ReadAll(io.LimitReader(resp.Body, wire.MaxMessage+1))
	if err != nil {
		return nil, err
	}
	if len(answer) > wire.MaxMessage || matches(query, answer) == matchNone {
		return nil, errNotOurs
	}
	return unpack(answer)
}
