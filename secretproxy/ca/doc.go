// Package ca owns the certificate authority of one sandbox: the root that the
// guest trusts and the leaf certificates that stand in for upstream servers.
//
// Data flow: New makes a root whose key exists only in this process (Load and
// Save keep it beside a named sandbox, mode 0600). The proxy asks for a leaf by
// the name or the address that the guest wants to talk to; leaves are signed on
// demand and kept in a bounded LRU.
//
// What this package does not protect against:
//   - Whoever holds the root's key can impersonate any server to this one
//     guest, and to nobody else: no two sandboxes share a root.
//   - It doesn't decide which names may have a leaf. The proxy asks only for
//     names that egress allowed.
//   - Leaves aren't revocable; they live for days at most.
package ca
