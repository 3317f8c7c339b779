// Package handoff serves connections that are open already: an http.Server or a
// gRPC server accepts them from a Listener as if they came from a socket.
//
// A Listener is bound to nothing and limits nothing: who hands connections over
// bounds their number, and closes those that no server accepts.
package handoff
