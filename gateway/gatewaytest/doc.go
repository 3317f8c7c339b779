// Package gatewaytest gives tests a whole gateway with a guest on its link and an internet that is made
// of this process' own listeners: nothing ever leaves the machine.
//
//	guest (second gVisor stack) ── link ── gateway ── Internet.DialContext ──► loopback listeners
//
// Internet notes every address that was dialled, so that a test can assert from the outside what a
// guest could and couldn't reach. It protects nothing.
package gatewaytest
