// Command dns measures msb's resolver as a guest has it, beside its peers, in one run: cached and uncached names, and the
// latency at half the peak. The guest is a network namespace with a TAP, in which dnsperf makes the load; every gateway is
// a process of its own. Behind netstack stand in turn dnsguard, a bare miekg/dns server, the shortest forwarder that
// miekg/dns allows, and a relay to dnsmasq, so that a row shows what the resolver costs and not the link; gvproxy is there
// as it is.
//
//	go run ./bench/dns [-seconds 5] [-rounds 3] [-names 60000] [-gvproxy PATH] [-check]
//
// It needs Linux, and root to make the namespace. bench/peers pins gvproxy:
//
//	go build -C bench/peers -o /tmp/gvproxy github.com/containers/gvisor-tap-vsock/cmd/gvproxy
//
// With -check it fails unless dnsguard reaches 0.8 of the bare server, 3 times
// gvproxy, and a p99 under 2 ms at half its peak.
package main
