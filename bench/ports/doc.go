// Command benchports measures what a client on the host gets from a server in a
// guest through a published port, beside gvproxy (gvisor-tap-vsock) and the
// hostfwd of QEMU's user network, in one run on one machine, so that the ratios
// mean something.
//
// The guest is a network namespace with a TAP, so it needs Linux and root. The
// subject is a process of its own; client, server and the bridge between the TAP
// and the subject's stream socket are another, and the client of connections that
// are open at once is a third. QEMU has no machine then, only a
// hub between its user network and the socket. msb's guest has the MTU of msb's
// QEMU guests, 65520, the others' their 1500.
//
//	go -C bench/peers build -o /tmp/gvproxy github.com/containers/gvisor-tap-vsock/cmd/gvproxy
//	go run ./bench/ports -gvproxy /tmp/gvproxy -qemu qemu-system-x86_64
package main
