// Package secretproxy opens the guest's TLS and HTTP connections that the
// policy wants inspected: it judges every request, puts real values where
// placeholders stand and may be replaced, and takes real values out of what
// comes back.
//
// Data flow: the gateway hands over a connection that stands at its
// ClientHello, with the flow that egress judged (ServeTLS). The guest's TLS ends
// here under a leaf of the sandbox's own authority (package ca). A strict check
// of each HTTP/1 head refuses what parsers read differently; then net/http
// parses HTTP/1 and HTTP/2, and nothing else does. The request's host must be
// the SNI and a name pinned to the destination; the judge sees method and path;
// placeholders are swapped (package secretstore) or are a violation. goproxy
// forwards over a transport of our own, verified for the same name, to the
// pinned address. The answer is masked on its way back (package mask). One budget bounds the
// memory of all of that (package memory).
//
// It is larger than other packages because a request, its answer, its upgrade and its signature share one exchange: its
// placeholders, its budget and its lines in the audit log. What knows no exchange is a package below (ca, mask, memory,
// secretstore, sigv4).
//
// What this package does not protect against:
//   - What an upstream does with a value that it may have, including giving it
//     to others. A server that hands the value back in a spelling that package
//     mask doesn't know defeats the mask.
//   - Protocols other than WebSocket after a 101: a connection to a host of a
//     secret goes over to one only where the policy names it, and is spliced.
//   - A secret's value decides nothing here: a guest that may use a token may
//     do with it whatever the rules' methods and paths allow.
//   - Hosts under [tls] bypass and flows that no rule inspects never come here.
package secretproxy
