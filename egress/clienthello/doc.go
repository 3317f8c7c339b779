// Package clienthello reads what a TLS client says before it has proved anything: the server name
// (SNI), the protocols it offers (ALPN) and whether it hides a second hello inside (ECH).
//
// It is pure: bytes in, a Hello or the word that more bytes are needed. A hello may be spread over
// any number of records (RFC 8446, section 5.1) and arrive in any number of pieces, up to MaxBytes;
// everything above that, or malformed, is an error and so a denied flow.
//
// It does not verify anything. A guest can write any name here: egress admits the name only for an
// address that dnsguard pinned to it, and the server's certificate is checked by whoever ends the TLS.
package clienthello
