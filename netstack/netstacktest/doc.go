// Package netstacktest is a guest for tests: a second gVisor stack at the other
// end of a netstack link, in the same process. Nothing leaves the process.
//
// Start builds the gateway's stack and a guest and takes both down with the
// test; Main adds the goroutine leak check that every package needs whose tests
// build a stack:
//
//	func TestMain(m *testing.M) { netstacktest.Main(m) }
//
// NewTapGuest (Linux, root) is a guest made of the kernel's own TCP in a network
// namespace of its own, behind a TAP.
//
// OpenIsland (Linux, root) is a host and an internet made of namespaces, for
// tests that run a whole msb and count what leaves it.
//
// It is for tests only: it trusts both ends and bounds nothing but what it
// captures.
package netstacktest
