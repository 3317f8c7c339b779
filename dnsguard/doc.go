// Package dnsguard is the only resolver a guest has, and the keeper of the pins
// that tie names to addresses.
//
// Data flow: the gateway hands every flow to port 53, whatever its destination,
// to ServeUDP or ServeTCP. A query is read by hand, counted against the
// sandbox's rate, and answered from the cache of packed replies if it can be.
// Otherwise the question is checked (form, type, name), the name is judged, and
// an allowed one is asked of the policy's upstream servers, once for all who ask
// at the same time. From the answer only the CNAME chain and the records of the
// type asked are taken; addresses are judged one by one, what is left is pinned,
// packed and returned. Every question is one audit event.
//
//	guest ── question ── judge ── [hosts] / PTR / cache ── inflight ── upstreams
//	                                                                      │
//	guest ◄── reply (id, case, TTL patched) ◄── pins ◄── filter ◄─────────┘
//
// Pins are what the rest of the gateway goes by: a flow to an address is a flow
// to the names that are pinned to it, and the address dialled is the pinned one,
// never a second resolution.
//
// What this package does not protect against:
//   - Data carried out slowly. Questions below a wildcard are bounded in number
//     and bytes for a window, not to zero.
//   - A lying upstream. Answers aren't validated by DNSSEC; a server, or someone
//     on the path to a plain one, can send a guest to another public address.
//     TLS to the upstream protects the path, TLS to the destination the rest.
//   - Two names on one address. A pin says that an address was given out for a
//     name, not that only this name lives there; the name on the connection is
//     the gateway's to check.
//   - DNS over other ports or over HTTPS inside an allowed connection.
package dnsguard
