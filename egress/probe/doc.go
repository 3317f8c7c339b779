// Package probe asks an egress engine what a person asks: may the sandbox reach this host and port, and
// by which steps is that judged? It walks a flow through the engine's stages as the gateway would,
// without any I/O: a name is taken to have a public address, or the one that the caller gives.
//
// It says what the policy decides, not what the network does: a name that is allowed may still resolve
// to an address that is not.
package probe
