// Command benchports measures what a client on the host gets from a server in a
// guest through a published port, beside gvproxy (gvisor-tap-vsock), in one run
// on one machine, so that the ratios mean something.
//
// The guest is a network namespace with a TAP, so it needs Linux and root. The
// subject is a process of its own; client, server and the bridge between the TAP
// and the subject's stream socket are another.
//
//	go -C bench/peers build -o /tmp/gvproxy github.com/containers/gvisor-tap-vsock/cmd/gvproxy
//	go run ./bench/ports -gvproxy /tmp/gvproxy
package main
