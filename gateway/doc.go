// Package gateway is the only way out of one sandbox: it wires the frame stack, the egress engine, the
// resolver and the inspecting proxy together and holds no judgement of its own.
//
// A TCP connection comes from netstack as a SYN that was not answered yet. Port 53 goes to dnsguard,
// whatever the destination. Everything else is given, with the names that dnsguard pinned to the
// destination, to egress.Engine: denied, it is reset before any handshake; allowed, the exact address
// is dialled first and then the handshake completed, so that the guest sees refused and timed-out
// connections as they are; where the address can't decide, the handshake is completed, the ClientHello
// or the request's head is read, and the engine asked again; what a rule or a secret needs to look into
// is handed to secretproxy. UDP and echo requests are judged alike. In which order this happens is said by
// a session of package egress/session; the executors here (tcp.go, udp.go, ping.go) do its steps.
//
// Every dial ends in one place (dial.go) where the exact address is classified once more. Reload
// replaces the policy while flows live; those that it no longer allows are reset.
//
// What it does not protect against: an operator's rule that allows too much, and covert channels in
// what is allowed (timing, sizes, names under an allowed wildcard within dnsguard's bounds).
package gateway
