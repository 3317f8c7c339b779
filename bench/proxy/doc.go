// Command proxy measures secretproxy beside what else could stand in its place,
// in one run on one machine: the upstream asked directly, a bare net/http
// reverse proxy that replaces the same header (the limit of this design),
// mitmproxy and squid where they are installed.
//
// Each contestant is a process of its own; load comes from h2load and wrk.
// Figures of different machines say little: the table gives ratios. What it
// doesn't measure is the guest's network stack in front of the proxy.
package main
