package sigv4

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/msb-project/msb/secretproxy/memory"
)

const (
	// Scheme begins the Authorization header of a signed request.
	Scheme = "AWS4-HMAC-SHA256 "
	// signedBody bounds a body that is read whole because the client didn't
	// say its hash; clients of services other than S3 rely on the server
	// hashing it, and their requests are small.
	signedBody = 8 << 20
	// Values of X-Amz-Content-Sha256 that are no hash (Amazon S3, "Signature
	// Calculations for the Authorization Header").
	UnsignedPayload     = "UNSIGNED-PAYLOAD"
	unsignedTrailer     = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
	StreamingPayload    = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
	ContentSHA256Header = "X-Amz-Content-Sha256"
)

// Credential is "AKIA…/20260101/eu-central-1/s3/aws4_request" of an
// Authorization header.
type Credential struct{ Key, Region, Service string }

// ParseCredential reads the credential of a signed request.
func ParseCredential(authorization string) (Credential, bool) {
	rest, ok := strings.CutPrefix(authorization, Scheme)
	if !ok {
		return Credential{}, false
	}
	for _, part := range strings.Split(rest, ",") {
		value, ok := strings.CutPrefix(strings.TrimSpace(part), "Credential=")
		if !ok {
			continue
		}
		fields := strings.Split(value, "/")
		if len(fields) != 5 || fields[4] != "aws4_request" {
			return Credential{}, false
		}
		return Credential{Key: fields[0], Region: fields[2], Service: fields[3]}, true
	}
	return Credential{}, false
}

// Why a request can't be signed again, beside memory.ErrFull.
var (
	ErrPayload  = errors.New("this kind of signed payload can't be signed again: configure the client to sign the body's hash, or not to sign the payload")
	ErrTooLarge = errors.New("the body is larger than 8 MiB and its hash isn't in X-Amz-Content-Sha256, so that it can't be signed again")
	ErrSign     = errors.New("the request can't be signed")
)

// Sign replaces the signature of r by one made with keys. What it reads of the
// body is taken from held.
func Sign(r *http.Request, keys aws.Credentials, c Credential, held *memory.Hold, now time.Time) error {
	delete(r.Header, "Authorization")
	delete(r.Header, "X-Amz-Security-Token") // the signer sets the real one
	hash, err := payloadHash(r, held)
	if err != nil {
		return err
	}
	signer := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = c.Service == "s3" })
	if err := signer.SignHTTP(r.Context(), keys, r, hash, c.Service, c.Region, now); err != nil {
		return fmt.Errorf("%w: %w", ErrSign, err)
	}
	if hash != StreamingPayload {
		return nil
	}
	_, signature, _ := strings.Cut(r.Header.Get("Authorization"), "Signature=")
	seed, err := hex.DecodeString(signature)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrSign, err)
	}
	r.Body = newChunkSigner(r.Context(), &memory.Hold{Budget: held.Budget}, r.Body, v4.NewStreamSigner(keys, c.Service, c.Region, seed), now)
	return nil
}

// payloadHash is what the client said of its body, or the body's hash.
func payloadHash(r *http.Request, held *memory.Hold) (string, error) {
	said := r.Header.Get(ContentSHA256Header)
	switch said {
	case UnsignedPayload, unsignedTrailer, StreamingPayload:
		return said, nil
	case "":
	default:
		if raw, err := hex.DecodeString(said); err == nil && len(raw) == sha256.Size {
			return said, nil
		}
		return "", ErrPayload
	}
	if r.Body == nil || r.Body == http.NoBody {
		empty := sha256.Sum256(nil)
		return hex.EncodeToString(empty[:]), nil
	}
	body, err := held.ReadAll(r.Body, signedBody)
	if errors.Is(err, memory.ErrFull) {
		return "", err
	}
	if err != nil {
		return "", ErrTooLarge
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:]), nil
}

// errKeys says what AWS credentials look like.
var errKeys = errors.New("write the JSON that `aws configure export-credentials` prints, lines aws_access_key_id = … and aws_secret_access_key = …, or ID:SECRET")

// ParseKeys reads the JSON of the AWS CLI's credential processes, the
// lines of a shared credentials file, or ID:SECRET[:TOKEN].
func ParseKeys(value []byte) (aws.Credentials, error) {
	defer clear(value)
	var process struct {
		AccessKeyID     string `json:"AccessKeyId"`
		SecretAccessKey string
		SessionToken    string
	}
	var c aws.Credentials
	if json.Unmarshal(value, &process) == nil {
		c = aws.Credentials{AccessKeyID: process.AccessKeyID, SecretAccessKey: process.SecretAccessKey, SessionToken: process.SessionToken}
	} else if text := string(value); strings.Contains(text, "=") && strings.Contains(text, "aws_") {
		for _, line := range strings.Split(text, "\n") {
			key, v, _ := strings.Cut(line, "=")
			switch v = strings.TrimSpace(v); strings.TrimSpace(key) {
			case "aws_access_key_id":
				c.AccessKeyID = v
			case "aws_secret_access_key":
				c.SecretAccessKey = v
			case "aws_session_token":
				c.SessionToken = v
			}
		}
	} else if parts := strings.SplitN(text, ":", 3); len(parts) >= 2 {
		c.AccessKeyID, c.SecretAccessKey = parts[0], parts[1]
		if len(parts) == 3 {
			c.SessionToken = parts[2]
		}
	}
	if c.AccessKeyID == "" || c.SecretAccessKey == "" {
		return aws.Credentials{}, errKeys
	}
	return c, nil
}
