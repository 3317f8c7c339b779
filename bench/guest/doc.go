// Command guest measures how long a name and a request take inside a guest: with msb, which asks its own resolver, judges,
// opens the request and puts a secret's value into it; and, in the same kernel under the same QEMU, with QEMU's user network
// (libslirp), which does none of it. What a program on the host needs is measured between them, as what the servers cost.
//
//	this program, in a network namespace          ║   another namespace
//	  msb ── QEMU ── guest: this program           ║   owns the public addresses:
//	  QEMU -netdev user ── guest: this program     ║   a name server, a server for https
//	  this program                                 ║
//
// A name is asked for once, so that no cache answers. Requests are of two kinds: on a connection of their own, and one after
// the other on one connection. It also says how much of each the client's own process takes of the guest's processor. Needs root.
package main
