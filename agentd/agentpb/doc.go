// Package agentpb is the schema between the host and the guest's PID 1: the
// gRPC service msb.agent.v1.Agent, generated from agent.proto, and the limits
// that both ends hold to.
//
// Data flows as gRPC over one byte stream. The host is the client. Whoever
// receives checks: a size from a message is never trusted as an allocation.
//
// It does not protect: there is no encryption and no authentication on the
// stream, because only the VMM that the host started holds its other end. What
// comes from the guest is hostile; agentd/agentclient is where it is judged.
package agentpb

//go:generate ./generate.sh
