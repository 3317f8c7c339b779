//go:build linux

package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
)

// Exit codes as GNU wget's.
const (
	wgetOther   = 1
	wgetNetwork = 4
	wgetTLS     = 5
	wgetStatus  = 8
)

// noRoots follows the error about a certificate that nobody vouches for.
const noRoots = `wget: the built-in image has no public CA certificates, only the sandbox's own CA: have msb inspect the host (in the policy, protocol = "https" with methods or paths, or [tls] inspect = "all"), or run an image that has them`

// errStatus is an answer from 400 on.
type errStatus struct{ line string }

func statusOf(resp *http.Response) error {
	line := resp.Proto + " " + resp.Status
	if reason := resp.Header.Get("X-Msb-Reason"); reason != "" {
		line += " (msb refused it: " + reason + ")"
	}
	return &errStatus{line}
}

// Error implements error.
func (e *errStatus) Error() string { return "server returned error: " + e.line }

// report prints what failed and returns the exit code for it.
func (w *wget) report(err error) int {
	var (
		status   *errStatus
		cert     *tls.CertificateVerificationError
		file     *os.PathError
		unknown  x509.UnknownAuthorityError
		wrapped  *url.Error
		busybox  *exec.ExitError
		record   tls.RecordHeaderError
		op       *net.OpError
		noSystem x509.SystemRootsError
	)
	if errors.As(err, &busybox) {
		return busybox.ExitCode() // it has said why
	}
	if errors.As(err, &wrapped) {
		err = wrapped.Err // the URL may hold a password
	}
	fmt.Fprintf(w.stderr, "wget: %s\n", err)
	if errors.As(err, &unknown) || errors.As(err, &noSystem) {
		fmt.Fprintln(w.stderr, noRoots)
	}
	alert := errors.As(err, &op) && (op.Op == "remote error" || op.Op == "local error")
	switch {
	case errors.As(err, &status):
		return wgetStatus
	case alert, errors.As(err, &cert), errors.As(err, &record), errors.Is(err, http.ErrSchemeMismatch):
		return wgetTLS
	case errors.As(err, &file):
		return wgetOther
	case ofNetwork(err):
		return wgetNetwork
	}
	return wgetOther
}

// ofNetwork reports whether the connection failed, not what was said on it.
func ofNetwork(err error) bool {
	var (
		wrapped *url.Error // a net.Error for whatever it wraps
		network net.Error
	)
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	// net/http exports no error for a connection that ends before it is used.
	return errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || err.Error() == "http: server closed idle connection"
}
