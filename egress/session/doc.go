// Package session judges one flow from its first packet to its end. It is the only place where a verdict of
// package egress becomes an order: the gateway does what a Step says with sockets, a review follows the same
// steps with the bytes of a capture.
//
//	Open ─► Reject, Drop, ToDNS
//	     ├► NeedBytes ── Data ──► Refuse, Inspect, Dial
//	     ├► NeedNames ── Resolved ─► the same, for what was asked of the explicit proxy
//	     ├► Dial ── Dialed ─► Relay, or Reject
//	     └► Wait ── Answer, Expire: a person approves it or doesn't
//
// Request judges each request of a connection that is inspected, Revise a flow that runs when new Rules come
// into force.
//
// A Session holds no socket, starts no goroutine and reads no clock; it is not safe for several goroutines.
// What it doesn't protect against: an executor that dials another address than the step's. The dial fuse of
// package egress catches that.
package session
