// Package netstack is the gateway's end of a guest's only link: Ethernet frames
// in, TCP connections, UDP flows and pings out. It knows nothing of policy; a
// Handler is asked about every flow before anything is answered.
//
// Data flow:
//
//	Link → guard (length, MAC, IP, EtherType, protocol) → Tap → gVisor
//	     → TCP forwarder / UDP flow table / echo → Handler
//
// and back through a queue whose one goroutine writes to the link, so that a
// guest that does not read holds up nobody but itself.
//
// What it does not do: it opens no socket on the host, resolves no name, and
// does not judge destinations. It does not protect a guest from itself: a guest
// may reset its own connections or fill its own share of the tables. It does
// not inspect payloads.
package netstack
