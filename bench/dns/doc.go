// Command dns measures dnsguard on a socket beside dnsmasq and a bare miekg/dns
// server, in one run: cached and uncached names, and the latency at half the
// peak. dnsperf makes the load; every server is a process of its own.
//
//	go run ./bench/dns [-seconds 5] [-rounds 3] [-names 60000] [-gvproxy PATH] [-check]
//
// With -gvproxy, and as root on Linux, it also measures through the link: a
// network namespace with a TAP as the guest, dnsguard behind netstack and
// gvproxy in turn. bench/peers pins gvproxy:
//
//	go build -C bench/peers -o /tmp/gvproxy github.com/containers/gvisor-tap-vsock/cmd/gvproxy
//
// With -check it fails unless dnsguard reaches 0.8 of the bare server, 3 times
// gvproxy, and a p99 under 2 ms at half its peak.
package main
