package netstack

import (
	"context"
	"net/netip"
	"time"

	"github.com/msb-project/msb/netstack/frameguard"
)

// Handler is called for every flow that a guest starts. Its methods run on
// goroutines of their own, as many at a time as Limits says, never on the path
// that frames take.
type Handler interface {
	// HandleTCP is called once for each SYN. It must call Accept or Reject;
	// returning with neither rejects. ctx ends when the guest gives up before
	// Accept, when the connection ends, or when the stack closes.
	HandleTCP(ctx context.Context, f *TCPFlow)
	// HandleUDP is called for the first datagram of a flow. Returning with
	// neither Accept, Reject nor Drop rejects. ctx ends with the flow.
	HandleUDP(ctx context.Context, f *UDPFlow)
	// HandlePing is called for each echo request that is not for the gateway
	// (the stack answers those). Not replying is silence.
	HandlePing(ctx context.Context, p *PingFlow)
	// Limited is called each time that a bound was hit, Dropped for frames that
	// were thrown away, but for DropQuiet and DropMulticast. Both are called on
	// the frame path: they must not block.
	Limited(LimitEvent)
	Dropped(reason frameguard.Reason, n int64)
}

// LimitKind names a bound of Limits.
type LimitKind string

// The bounds.
const (
	LimitTCPConnections LimitKind = "tcp_connections"
	LimitTCPInFlight    LimitKind = "tcp_in_flight"
	LimitUDPFlows       LimitKind = "udp_flows"
	LimitPings          LimitKind = "pings"
	// LimitUDPQueue is a datagram for which its flow's queue had no room.
	LimitUDPQueue LimitKind = "udp_queue"
)

// LimitEvent says which bound was hit by which flow.
type LimitEvent struct {
	Kind     LimitKind
	Protocol string // "tcp", "udp" or "icmp"
	Src, Dst netip.AddrPort
	Time     time.Time
}

// Direction of a frame.
type Direction uint8

// Directions, from the guest's side.
const (
	FromGuest Direction = iota
	ToGuest
)

// FrameTap sees frames, for captures. It is called on the frame path, from one
// goroutine for FromGuest and from several for ToGuest: it must not block and
// must not keep the slice. dropped is empty, or the reason for which the guard
// refused the frame.
type FrameTap interface {
	Frame(dir Direction, frame []byte, dropped frameguard.Reason)
}

// BatchTap is a FrameTap that takes frames as they are read and written: several
// at once and, to the guest, in parts, so that none is put together for it. It
// must not keep the batch. Frames that the guard dropped come one by one.
type BatchTap interface {
	FrameTap
	Frames(dir Direction, frames *Batch)
}
