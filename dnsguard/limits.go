package dnsguard

import "time"

// Bounds on everything that a guest or an upstream can make grow (invariant
// 11). What happens at each is said here and counted in Stats.
const (
	// maxQuery is the longest query in bytes that is read from a guest. A
	// question needs at most 271, EDNS padding (RFC 8467) brings it to a
	// multiple of 128; a longer one is answered FORMERR.
	maxQuery = 4096

	// maxInFlight bounds questions of one sandbox that wait for an upstream,
	// and with it sockets of the host. Above it: SERVFAIL with an explanation.
	maxInFlight = 256
	// maxPipelined bounds the questions of one TCP connection that are worked
	// on at once; above it the connection isn't read until one is answered.
	maxPipelined = 32
	// maxTCPConns bounds DNS connections over TCP of one sandbox; the next one
	// is closed at once.
	maxTCPConns = 64

	// idleTimeout ends a guest's UDP flow or TCP connection.
	idleTimeout = 30 * time.Second
	// writeTimeout ends a TCP connection whose guest doesn't read its answers.
	writeTimeout = 10 * time.Second

	// maxCacheEntries and maxCacheBytes bound the answers that are kept; at
	// the bound the oldest goes.
	maxCacheEntries = 16384
	maxCacheBytes   = 8 << 20
	// failureTTL is how long a failure of every upstream is remembered: RFC
	// 9520 asks for at least a second, so that a broken zone isn't hammered.
	failureTTL = time.Second
	// maxNegativeTTL bounds how long an absence is believed, whatever the SOA
	// says (RFC 2308 suggests one to three hours; a name that was just created
	// should not take that long to appear).
	maxNegativeTTL = 5 * time.Minute

	// maxPinnedNames, maxPinsPerName and maxNamesPerAddr bound the pin table:
	// at each, what was pinned longest ago goes, unless a live flow holds it.
	maxPinnedNames  = 16384
	maxPinsPerName  = 64
	maxNamesPerAddr = 256
	// pinGrace is how long a pin outlives the TTL in the guest's answer:
	// getaddrinfo hides the TTL, and curl keeps what it got for 60 s.
	pinGrace = 2 * time.Minute

	// maxChain bounds a CNAME chain; BIND's and Unbound's bounds are 16 and 11.
	maxChain = 16
	// maxRecords bounds the records of one answer that are handed on; the rest
	// of a 1,000-record answer is dropped. As many addresses as a name can pin.
	maxRecords = maxPinsPerName
	// maxTXTBytes bounds the TXT data of one answer: SPF, DKIM and the
	// verification records of large domains stay under it, a download doesn't.
	maxTXTBytes = 4096

	// localTTL is the TTL of what dnsguard answers on its own ([hosts], PTR).
	localTTL = time.Minute
)

// Bounds on questions below one wildcard that go upstream, against data carried
// out in them: in a window, so many questions, and so many bytes in front of the
// wildcard's base. A question above either is REFUSED.
const (
	tunnelWindow = 10 * time.Minute
	// tunnelQuestions is both address types of 512 names, several times what a
	// browser or a package manager looks up below one CDN wildcard.
	tunnelQuestions = 1024
	// tunnelBytes lets tunnelQuestions labels of 16 bytes pass, and long ones
	// sooner exhaust it: 16 KiB in ten minutes is 27 bytes a second.
	tunnelBytes = 16 << 10
)
