//go:build linux

// Package truststore adds certificates to every list of trusted roots that an
// image has, and names the variables that make tools read them.
//
//	PEM from the handshake ─► Install ─► each bundle and Java keystore of the image, once
//	                       └► Env    ─► SSL_CERT_FILE and its like
//
// It does not reach Java keystores with a password of their own, NSS databases
// of browsers, nor programs that carry their own roots.
package truststore
