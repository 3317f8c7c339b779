package secretproxy

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/secretproxy/memory"
)

const (
	sigV4Scheme = "AWS4-HMAC-SHA256 "
	// signedBody bounds a body that is read whole because the client didn't
	// say its hash; clients of services other than S3 rely on the server
	// hashing it, and their requests are small.
	signedBody = 8 << 20
	// Values of X-Amz-Content-Sha256 that are no hash (Amazon S3, "Signature
	// Calculations for the Authorization Header").
	unsignedPayload     = "UNSIGNED-PAYLOAD"
	unsignedTrailer     = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
	streamingPayload    = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
	contentSHA256Header = "X-Amz-Content-Sha256"
)

// sigV4Credential is "AKIA…/20260101/eu-central-1/s3/aws4_request" of an
// Authorization header.
type sigV4Credential struct{ key, region, service string }

// parseSigV4 reads the credential of a signed request.
func parseSigV4(authorization string) (sigV4Credential, bool) {
	rest, ok := strings.CutPrefix(authorization, sigV4Scheme)
	if !ok {
		return sigV4Credential{}, false
	}
	for _, part := range strings.Split(rest, ",") {
		value, ok := strings.CutPrefix(strings.TrimSpace(part), "Credential=")
		if !ok {
			continue
		}
		fields := strings.Split(value, "/")
		if len(fields) != 5 || fields[4] != "aws4_request" {
			return sigV4Credential{}, false
		}
		return sigV4Credential{key: fields[0], region: fields[2], service: fields[3]}, true
	}
	return sigV4Credential{}, false
}

// sign replaces the signature that the guest made with placeholder credentials
// by one made with the real ones. It reports whether the request was signed
// with a placeholder; the real key itself is never sent.
func (s *swapper) sign() bool {
	values := s.req.Header["Authorization"]
	if len(values) != 1 || !strings.HasPrefix(values[0], sigV4Scheme) {
		return false
	}
	e := s.ex.table.find(values[0])
	if e == nil {
		return false
	}
	policy := e.holder.Policy()
	credential, ok := parseSigV4(values[0])
	if policy.Kind != policies.SigV4 || !ok || credential.key != e.placeholder || !s.ex.guest.isTLS || !s.ex.mayGo(e) {
		return false // the search of the headers makes a violation of it
	}
	if !slices.Contains(policy.Services, credential.service) || !slices.Contains(policy.Regions, credential.region) {
		s.violation(e, "sigv4", "secret "+policy.Name+" may not sign for this service or region")
		return true
	}
	if fault := s.signAs(e, credential); fault != nil {
		s.fault = fault
		return true
	}
	s.ex.used.add(e)
	return true
}

func (s *swapper) signAs(e *entry, c sigV4Credential) *refusal {
	bad := func(code, message string) *refusal {
		return &refusal{status: http.StatusForbidden, code: code, rule: s.ex.verdict.Rule, secret: e.holder.Policy().Name, message: message}
	}
	keys, err := parseAWSCredentials(s.present(e).Reveal())
	if s.fault != nil {
		return s.fault
	}
	if err != nil {
		return bad("sigv4_credentials", "the source of secret "+e.holder.Policy().Name+" holds no AWS credentials: "+err.Error())
	}
	h := s.req.Header
	delete(h, "Authorization")
	delete(h, "X-Amz-Security-Token") // the signer sets the real one
	hash, fault := s.payloadHash()
	if fault != nil {
		return fault
	}
	now := s.proxy.cfg.now().UTC()
	signer := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = c.service == "s3" })
	if err := signer.SignHTTP(s.req.Context(), keys, s.req, hash, c.service, c.region, now); err != nil {
		return bad("sigv4", "the request can't be signed")
	}
	if hash != streamingPayload {
		return nil
	}
	_, signature, _ := strings.Cut(h.Get("Authorization"), "Signature=")
	seed, err := hex.DecodeString(signature)
	if err != nil {
		return bad("sigv4", "the request can't be signed")
	}
	s.req.Body = newChunkSigner(s.req.Context(), &memory.Hold{Budget: s.proxy.memory}, s.req.Body, v4.NewStreamSigner(keys, c.service, c.region, seed), now)
	return nil
}

// payloadHash is what the client said of its body, or the body's hash.
func (s *swapper) payloadHash() (string, *refusal) {
	said := s.req.Header.Get(contentSHA256Header)
	switch said {
	case unsignedPayload, unsignedTrailer, streamingPayload:
		return said, nil
	case "":
	default:
		if raw, err := hex.DecodeString(said); err == nil && len(raw) == sha256.Size {
			return said, nil
		}
		return "", &refusal{
			status: http.StatusForbidden, code: "sigv4_payload", rule: s.ex.verdict.Rule,
			message: "this kind of signed payload can't be signed again: configure the client to sign the body's hash, or not to sign the payload",
		}
	}
	if s.req.Body == nil || s.req.Body == http.NoBody {
		empty := sha256.Sum256(nil)
		return hex.EncodeToString(empty[:]), nil
	}
	body, err := s.ex.held.ReadAll(s.req.Body, signedBody)
	if errors.Is(err, memory.ErrFull) {
		return "", memoryFull()
	}
	if err != nil {
		return "", &refusal{
			status: http.StatusRequestEntityTooLarge, code: "sigv4_payload", rule: s.ex.verdict.Rule,
			message: "the body is larger than 8 MiB and its hash isn't in X-Amz-Content-Sha256, so that it can't be signed again",
		}
	}
	s.req.Body, s.req.ContentLength = newBytesBody(body), int64(len(body))
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:]), nil
}

// errCredentials says what AWS credentials look like.
var errCredentials = errors.New("write the JSON that `aws configure export-credentials` prints, lines aws_access_key_id = … and aws_secret_access_key = …, or ID:SECRET")

// parseAWSCredentials reads the JSON of the AWS CLI's credential processes, the
// lines of a shared credentials file, or ID:SECRET[:TOKEN].
func parseAWSCredentials(value []byte) (aws.Credentials, error) {
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
		return aws.Credentials{}, errCredentials
	}
	return c, nil
}

// streamSigner signs the chunks of a streaming payload in order.
type streamSigner interface {
	GetSignature(ctx context.Context, headers, payload []byte, at time.Time, o ...func(*v4.StreamSignerOptions)) ([]byte, error)
}
