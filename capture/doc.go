// Package capture writes and reads captures of a sandbox's link: pcapng files that any tool opens, with
// the gateway's verdicts as comments, the resolver's names as name records, and the TLS keys of the
// guest's own sessions as decryption secrets.
//
// Data flow, writing:
//
//	Packet, Annotate, Names, TLSKeys ─► batch in memory ─► one goroutine ─► file, rotated by size and age
//
// A batch is gathered for a moment before it is written. That is what lets a verdict, which exists only
// after the flow's first packet has passed, still become a comment on that very packet; see Annotate.
// Nothing here ever waits for the disk: what doesn't fit into the batch is lost, counted, and the count
// is written into the file.
//
// Reading: Reader takes pcapng of either byte order and all four kinds of pcap, hands out what is
// readable, and says at which offset the rest is not.
//
// What this package does not protect against: a capture holds everything that a guest sent and received,
// and with the TLS keys all of it in clear. Files are made with mode 0600; who may read one may read the
// guest's traffic. The values of secrets are not in it, because they never are on the guest's side of
// the gateway, but that is the gateway's doing and not this package's.
package capture
