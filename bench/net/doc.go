// Command net measures what a guest gets through the gateway's netstack and
// Relay beside its peers, in one run on one machine, so that the ratios mean
// something: raw loopback, a kernel-TCP copy relay, gvproxy (gvisor-tap-vsock)
// and slirp4netns.
//
// The guest is a network namespace with a TAP, so it needs Linux and root.
// Every subject is a process of its own, whose CPU time is read when it ends;
// client, server and the bridge between TAP and link are others and are not
// counted. Between the TAP and msb or gvproxy stands a stream socket, as between
// a VMM and its gateway; slirp4netns writes to its TAP itself, and so does the
// row "msb on the TAP".
//
//	go -C bench/peers build -o /tmp/gvproxy github.com/containers/gvisor-tap-vsock/cmd/gvproxy
//	go run ./bench/net -gvproxy /tmp/gvproxy -seconds 3
//
// With -grow it measures downloads on 1 to 10,000 flows at once instead. The
// source sends as soon as a flow is open, so that what a subject and the kernel
// hold of each flow is full when the rates of all of them are taken: how long
// many flows take until they run is not in these figures.
//
// It measures one machine's relations, not a network: nothing here shows
// behaviour under loss or delay.
package main
