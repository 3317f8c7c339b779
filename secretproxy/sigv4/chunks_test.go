package sigv4_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/msb-project/msb/secretproxy/memory"
	"github.com/msb-project/msb/secretproxy/sigv4"
)

// counted counts what is read.
type counted struct {
	io.Reader
	n int
}

// Read implements io.Reader.
func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += n
	return n, err
}

// zeros never ends.
type zeros struct{}

// Read implements io.Reader.
func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// TestI11_UnsignableChunksAreRefused: none of these is read farther than its fault, and nothing stays held.
func TestI11_UnsignableChunksAreRefused(t *testing.T) {
	t.Parallel()
	const signed = ";chunk-signature=00\r\n"
	for name, c := range map[string]struct {
		body string
		most int
		ok   bool
	}{
		"whole":                 {"5" + signed + "hello\r\n0" + signed + "\r\n", 100, true},
		"larger than 16 MiB":    {"1000001" + signed, 8 << 10, false},
		"larger than an int":    {"1000000000000001" + signed, 8 << 10, false},
		"no signature":          {"5\r\nhello\r\n0\r\n\r\n", 8 << 10, false},
		"no number":             {"-5" + signed + "hello\r\n0" + signed + "\r\n", 8 << 10, false},
		"longer than it says":   {"4" + signed + "hello\r\n0" + signed + "\r\n", 8 << 10, false},
		"no line end behind it": {"5" + signed + "helloXX0" + signed + "\r\n", 8 << 10, false},
		"a line without an end": {strings.Repeat("0", 300), 8 << 10, false},
	} {
		budget := memory.New(64 << 20)
		body := &counted{Reader: io.MultiReader(strings.NewReader(c.body), zeros{})}
		if c.ok {
			body.Reader = strings.NewReader(c.body)
		}
		r := httptest.NewRequest(http.MethodPut, "https://bucket.example/key", io.NopCloser(body))
		r.Header.Set(sigv4.ContentSHA256Header, sigv4.StreamingPayload)
		keys := aws.Credentials{AccessKeyID: "id", SecretAccessKey: "secret"}
		if err := sigv4.Sign(r, keys, sigv4.Credential{Region: "r", Service: "s3"}, &memory.Hold{Budget: budget}, time.Now()); err != nil {
			t.Fatal(err)
		}
		_, err := io.Copy(io.Discard, r.Body)
		if (err == nil) != c.ok || errors.Is(err, memory.ErrFull) || body.n > c.most {
			t.Errorf("%s: %d bytes were read, then %v", name, body.n, err)
		}
		if err := r.Body.Close(); err != nil || budget.Used() != 0 {
			t.Errorf("%s: %v, and %d bytes are held behind its end", name, err, budget.Used())
		}
	}
}

// TestPayloadHashesMustBeSHA256: what the client says of the body is a SHA-256, or one of the words for none.
func TestPayloadHashesMustBeSHA256(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]error{
		strings.Repeat("0a", 32): nil, sigv4.UnsignedPayload: nil, "": nil,
		strings.Repeat("0a", 20): sigv4.ErrPayload, strings.Repeat("0a", 33): sigv4.ErrPayload, "STREAMING-ELSE": sigv4.ErrPayload,
	} {
		r := httptest.NewRequest(http.MethodPut, "https://bucket.example/key", strings.NewReader("body"))
		r.Header.Set(sigv4.ContentSHA256Header, said)
		keys := aws.Credentials{AccessKeyID: "id", SecretAccessKey: "secret"}
		if err := sigv4.Sign(r, keys, sigv4.Credential{Region: "r", Service: "s3"}, nil, time.Now()); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", said, err, want)
		}
	}
}
