// Package upstream asks resolvers: over UDP and TCP, TLS and HTTPS, and those of the host's resolv.conf. A Set
// holds the servers of one policy and asks them in order until one answers. Queries are hard to guess, and
// answers must match them (invariant 6).
//
// It doesn't look at what answers say, and keeps none. Answers aren't validated by DNSSEC.
package upstream
