// Package frameguard judges a guest's frames by their bytes alone, before any other code reads them: lengths,
// MAC and IP addresses, EtherType, protocol, options, checksums. Guard does it on a live link, Offline for the
// frames of a capture.
//
// It keeps no state but the leased MAC, does no I/O and allocates nothing. It does not look at ports, names or
// anything above the transport header, and doesn't put fragments together: what a fragment carries is for the
// stack behind it.
package frameguard
