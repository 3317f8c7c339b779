package secretproxy

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/secretproxy/sigv4"
)

const (
	realKeyID     = "AKIAREALREALREALREAL"
	realSecretKey = "real/secret+key/of/forty/characters/long"
)

// awsServer signs what it got once more with the real credentials, and answers
// 200 if that gives the signature that it got.
func awsServer(t *testing.T, service string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
		if err != nil {
			http.Error(w, "date", http.StatusForbidden)
			return
		}
		got := r.Header.Get("Authorization")
		hash := r.Header.Get(sigv4.ContentSHA256Header)
		if hash == "" {
			sum := sha256.Sum256(body)
			hash = hex.EncodeToString(sum[:])
		}
		again := r.Clone(context.Background())
		_, list, _ := strings.Cut(got, "SignedHeaders=")
		list, _, _ = strings.Cut(list, ",")
		for name := range again.Header {
			if !strings.Contains(";"+list+";", ";"+strings.ToLower(name)+";") {
				again.Header.Del(name)
			}
		}
		again.URL.Host = r.Host
		keys := aws.Credentials{AccessKeyID: realKeyID, SecretAccessKey: realSecretKey, SessionToken: r.Header.Get("X-Amz-Security-Token")}
		signer := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = service == "s3" })
		if err := signer.SignHTTP(context.Background(), keys, again, hash, service, "eu-central-1", at); err != nil {
			t.Error(err)
		}
		if again.Header.Get("Authorization") != got {
			http.Error(w, fmt.Sprintf("SignatureDoesNotMatch: got %q want %q", got, again.Header.Get("Authorization")), http.StatusForbidden)
			return
		}
		if hash == sigv4.StreamingPayload {
			_, signature, _ := strings.Cut(got, "Signature=")
			seed, _ := hex.DecodeString(signature)
			if err := checkChunks(body, v4.NewStreamSigner(keys, service, "eu-central-1", seed), at); err != nil {
				http.Error(w, err.Error(), http.StatusForbidden)
				return
			}
		}
		_, _ = io.WriteString(w, "signed well, "+r.Header.Get("X-Amz-Security-Token"))
	}
}

// checkChunks reads a body in signed chunks to its end.
func checkChunks(body []byte, signer *v4.StreamSigner, at time.Time) error {
	for {
		line, rest, _ := bytes.Cut(body, []byte("\r\n"))
		var size int
		var signature []byte
		if _, err := fmt.Sscanf(string(line), "%x;chunk-signature=%x", &size, &signature); err != nil || len(rest) < size+2 {
			return fmt.Errorf("a chunk begins with %q, %d bytes follow: %w", line, len(rest), err)
		}
		want, err := signer.GetSignature(context.Background(), nil, rest[:size], at)
		if err != nil || !bytes.Equal(want, signature) || string(rest[size:size+2]) != "\r\n" {
			return fmt.Errorf("a chunk of %d bytes is signed with %x, not %x: %w", size, signature, want, err)
		}
		if body = rest[size+2:]; size == 0 {
			return nil
		}
	}
}

func awsWorld(t *testing.T, service, source string, options ...option) *world {
	t.Helper()
	path := filepath.Join(t.TempDir(), "aws")
	if err := os.WriteFile(path, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	return newWorld(t, awsServer(t, service), append(options, withSecret(policies.Secret{
		Name: "GITHUB_TOKEN", From: policies.Source{Kind: policies.FromFile, Value: path}, Kind: policies.SigV4, Placeholder: "AKIA{16}",
		Hosts: []policies.SecretHost{{Pattern: hostname.MustParsePattern(apiHost)}}, Services: []string{"s3", "dynamodb"}, Regions: []string{"eu-central-1"},
	}))...)
}

// guestSigns signs as an SDK in the guest does, with the placeholder for both
// keys.
func guestSigns(t *testing.T, r *http.Request, w *world, hash, service, region string) *http.Request {
	t.Helper()
	keys := aws.Credentials{AccessKeyID: w.placeholder(), SecretAccessKey: w.placeholder(), SessionToken: "guest-session"}
	if err := v4.NewSigner().SignHTTP(context.Background(), keys, r, hash, service, region, time.Now()); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestSigV4IsSignedAgain(t *testing.T) {
	t.Parallel()
	sum := sha256.Sum256([]byte("hello"))
	hash := hex.EncodeToString(sum[:])
	chunked := "5;chunk-signature=" + strings.Repeat("0", 64) + "\r\nhello\r\n0;chunk-signature=" + strings.Repeat("0", 64) + "\r\n\r\n"
	sources := map[string]string{
		"process": `{"Version":1,"AccessKeyId":"` + realKeyID + `","SecretAccessKey":"` + realSecretKey + `","SessionToken":"real-session"}`,
		"file":    "[default]\naws_access_key_id = " + realKeyID + "\naws_secret_access_key = " + realSecretKey,
		"pair":    realKeyID + ":" + realSecretKey,
	}
	for source, text := range sources {
		for _, c := range []struct{ name, service, said, body, path string }{
			{"hash", "s3", hash, "hello", "/bucket/a%20b/c+d?x=1&y=a%2Fb"},
			{"unsigned", "s3", sigv4.UnsignedPayload, "hello", "/bucket/key"},
			{"streaming", "s3", sigv4.StreamingPayload, chunked, "/bucket/key"},
			{"no header", "dynamodb", "", "hello", "/"},
			{"escaped path", "dynamodb", "", "hello", "/a%20b"},
		} {
			w := awsWorld(t, c.service, text)
			for _, http2 := range []bool{false, true} {
				r := request(t, "PUT", "https://"+apiHost+c.path, strings.NewReader(c.body))
				signedHash := hash
				if c.said != "" {
					r.Header.Set(sigv4.ContentSHA256Header, c.said)
					signedHash = c.said
				}
				resp, body := do(t, w.client(apiHost, apiAddr, http2), guestSigns(t, r, w, signedHash, c.service, "eu-central-1"))
				if resp.StatusCode != http.StatusOK {
					t.Errorf("%s %s (http2 %v): status %d: %s", source, c.name, http2, resp.StatusCode, body)
				}
			}
			if strings.Contains(w.api.bytes(), realSecretKey) || strings.Contains(w.api.bytes(), "guest-session") {
				t.Errorf("%s %s: the server got %q", source, c.name, w.api.bytes())
			}
		}
	}
}

func TestI9_MisplacedSigV4IsRefused(t *testing.T) {
	t.Parallel()
	pair := realKeyID + ":" + realSecretKey
	for name, change := range map[string]func(*world) *http.Request{
		"another region": func(w *world) *http.Request {
			return guestSigns(t, request(t, "GET", "https://"+apiHost+"/", nil), w, sigv4.UnsignedPayload, "s3", "us-east-1")
		},
		"another service": func(w *world) *http.Request {
			return guestSigns(t, request(t, "GET", "https://"+apiHost+"/", nil), w, sigv4.UnsignedPayload, "iam", "eu-central-1")
		},
		"bearer": func(w *world) *http.Request {
			return request(t, "GET", "https://"+apiHost+"/", nil, "Authorization", "Bearer "+w.placeholder())
		},
		"presigned URL": func(w *world) *http.Request {
			return request(t, "GET", "https://"+apiHost+"/?X-Amz-Credential="+w.placeholder()+"%2F20260101", nil)
		},
		"malformed": func(w *world) *http.Request {
			return request(t, "GET", "https://"+apiHost+"/", nil, "Authorization", sigv4.Scheme+"Credential="+w.placeholder())
		},
		"odd payload": func(w *world) *http.Request {
			r := request(t, "GET", "https://"+apiHost+"/", nil, sigv4.ContentSHA256Header, "STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD")
			return guestSigns(t, r, w, sigv4.UnsignedPayload, "s3", "eu-central-1")
		},
	} {
		w := awsWorld(t, "s3", pair)
		resp, body := do(t, w.client(apiHost, apiAddr, true), change(w))
		if resp.StatusCode != http.StatusForbidden || w.api.bytes() != "" {
			t.Errorf("%s: status %d: %s; the server got %q", name, resp.StatusCode, body, w.api.bytes())
		}
		if name != "odd payload" && len(w.events.of(audit.SecretViolation)) != 1 {
			t.Errorf("%s: %d violation events", name, len(w.events.of(audit.SecretViolation)))
		}
	}
}
