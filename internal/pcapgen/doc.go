// Package pcapgen makes the captures of testdata/pcap: what a guest puts on its link when it uses the
// network as programs do, and when it attacks the gateway in each way that shared cases list and that
// shows on the wire. It is deterministic: the same code gives the same bytes. Recorded lists the captures
// beside them that real guests made, Spoken those of sessions that review's tests speak with real servers.
//
// A capture shows the guest's side of a link to a world without a gateway: servers answer, resolvers say
// what the attacker wants them to say. So a review tells what the gateway would have done, and replaying
// the guest's frames through a gateway, or having a live stack do the same, shows that it does.
//
// It is for tests only and protects nothing.
package pcapgen
