package upstream

import "time"

// Bounds on what a resolver or a spoofer can make grow (invariant 11).
const (
	// attemptTimeout is for one exchange with one server.
	attemptTimeout = 1200 * time.Millisecond
	// lookupTimeout is when the last attempt starts: all are over before the 5 s
	// after which glibc asks again.
	lookupTimeout = 3500 * time.Millisecond
	// maxAttempts bounds the exchanges for one question; where the policy names
	// more servers, each is asked once.
	maxAttempts = 4
	// maxStrays is how many datagrams that are no answer to our question are
	// read before the socket is given up for TCP: a flood of spoofed answers
	// gets so many guesses at id, port and case, and no more.
	maxStrays = 64
	// backOffTime is how long a server that failed is asked last.
	backOffTime = 30 * time.Second
	// maxIdleConns and idleConnAge bound the connections that DNS over TLS
	// keeps; servers close idle ones after 10 to 30 s.
	maxIdleConns = 8
	idleConnAge  = 9 * time.Second
	// maxSystemServers bounds the nameserver lines of resolv.conf; resolv.conf(5)
	// has three.
	maxSystemServers = 3
	// resolvConfAge is how long resolv.conf is believed without a look.
	resolvConfAge = time.Second
)
