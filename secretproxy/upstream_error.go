package secretproxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/msb-project/msb/secretproxy/memory"
)

// upstreamRefusal turns a failed round trip into an answer that names the class
// of the cause. The error's own text stays out of it: it may hold what the
// upstream sent.
func upstreamRefusal(err error) *refusal {
	var violation *errViolation
	if errors.As(err, &violation) {
		return violation.refusal
	}
	if errors.Is(err, memory.ErrFull) {
		return memoryFull()
	}
	cause, message := upstreamCause(err)
	if errors.Is(err, ErrVia) && cause != "canceled" {
		cause, message = "via", "the proxy that the policy's [tls] via names could not be connected to, or refused the connection to the server"
	}
	return &refusal{status: http.StatusBadGateway, code: "upstream_" + cause, cause: cause, message: message}
}

// tlsAlertOp is the Op of the net.OpError that crypto/tls makes of a peer's alert.
const tlsAlertOp = "remote error"

func upstreamCause(err error) (cause, message string) {
	if cause, message, ok := certificateCause(err); ok {
		return cause, message
	}
	var netErr net.Error
	var alert *net.OpError // crypto/tls has its AlertError for QUIC only
	var record tls.RecordHeaderError
	switch {
	case errors.Is(err, context.Canceled):
		return "canceled", "the request was given up before the server answered"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused", "the server refused the connection"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "unreachable", "the host has no route to the server"
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded), errors.As(err, &netErr) && netErr.Timeout():
		return "timeout", "the server did not answer in time"
	case errors.As(err, &alert) && alert.Op == tlsAlertOp, errors.As(err, &record):
		return "tls", "the TLS handshake with the server failed: it speaks another protocol or version, or wants a client certificate"
	case errors.Is(err, errHeads), err != nil && unreadableHead(err):
		return "protocol", "the server's answer can't be read, or its head is larger than 64 KiB"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "closed", "the server closed the connection before it answered"
	}
	return "failed", "the server could not be talked to; the sandbox's audit log and the server's own log say more"
}

// unreadableHead goes by net/http's sentences, which has no values for them. A head over HTTP/2 that is far too large
// breaks the rules of its connection.
func unreadableHead(err error) bool {
	return slices.ContainsFunc([]string{"response headers exceeded", "response header list larger", "connection error: "}, func(s string) bool {
		return strings.Contains(err.Error(), s)
	})
}

// certificateCause names what is wrong with the server's certificate.
func certificateCause(err error) (cause, message string, ok bool) {
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	var verification *tls.CertificateVerificationError
	switch {
	case errors.As(err, &unknown):
		return "certificate_unknown_authority", "the server's certificate is signed by an authority that the host doesn't trust; [tls] extra_ca adds one for named hosts", true
	case errors.As(err, &name):
		return "certificate_name", "the server's certificate is for another name", true
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "certificate_expired", "the server's certificate has expired or is not valid yet", true
	case errors.As(err, &invalid), errors.As(err, &verification):
		return "certificate_invalid", "the server's certificate can't be verified", true
	}
	return "", "", false
}
