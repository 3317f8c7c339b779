// Package wire reads and writes the parts of DNS messages that every query passes through: a guest's question,
// without allocating and without following a compression pointer, and the pieces that answers and queries to
// resolvers are put together from. It judges nothing and does no I/O.
package wire
