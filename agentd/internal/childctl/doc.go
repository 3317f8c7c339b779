// Package childctl is msb-ctl: the program by which others in a sandbox ask for children of it.
//
// Data flow: arguments become one request, a line of JSON on a Unix socket of the agent's, which the supervisor answers
// with lines of JSON (agentpb.ChildRequest, agentpb.ChildReply).
//
// What it does not protect against: anything. It runs in the guest with its user's rights, and whoever may connect to
// the socket can write what they like there; the supervisor decides what it grants.
package childctl
