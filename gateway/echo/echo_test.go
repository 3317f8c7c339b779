package echo_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"go.uber.org/goleak"

	"github.com/msb-project/msb/gateway/echo"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// client returns a client of a started service, and its certificate's name.
func client(t *testing.T) *http.Client {
	t.Helper()
	// httptest brings a certificate for example.com and the client that trusts it.
	donor := httptest.NewTLSServer(http.NotFoundHandler())
	cert := donor.TLS.Certificates[0]
	pool := x509.NewCertPool()
	pool.AddCert(donor.Certificate())
	donor.Close()

	s := echo.Start(func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &cert, nil })
	tr := &http.Transport{
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return s.Dial(ctx) },
		TLSClientConfig:   &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12},
		ForceAttemptHTTP2: true,
	}
	t.Cleanup(func() {
		tr.CloseIdleConnections()
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return &http.Client{Transport: tr}
}

func TestReplyTellsWhatTheServerReceived(t *testing.T) {
	c := client(t)
	req, err := http.NewRequest(http.MethodPost, "https://example.com/a/b?q=1", bytes.NewBufferString("hello"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer value")
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var got echo.Reply
	if err := json.NewDecoder(resp.Body).Decode(&got); err != nil {
		t.Fatal(err)
	}
	if got.Method != http.MethodPost || got.Path != "/a/b" || got.Host != "example.com" || got.BodyBytes != 5 {
		t.Errorf("got %+v", got)
	}
	if want := digest("hello"); got.BodySHA256 != want {
		t.Errorf("body digest %s, want %s", got.BodySHA256, want)
	}
	if want := digest("Bearer value"); got.HeaderSHA256["Authorization"] != want {
		t.Errorf("header digest %s, want %s", got.HeaderSHA256["Authorization"], want)
	}
}

func TestDialAfterCloseIsRefused(t *testing.T) {
	s := echo.Start(nil)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Dial(t.Context()); err == nil {
		t.Error("dial of a closed service succeeded")
	}
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}
