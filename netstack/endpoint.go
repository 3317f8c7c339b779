package netstack

import (
	"sync"
	"sync/atomic"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"

	"github.com/msb-project/msb/netstack/frameguard"
)

var (
	_ stack.LinkEndpoint = (*endpoint)(nil)
	_ stack.GSOEndpoint  = (*endpoint)(nil)
)

// gsoMaxSize keeps segment and headers under MaxFrame.
const gsoMaxSize = 65000

// endpoint is gVisor's view of the link. It outlives the links: between two of
// them frames to the guest are dropped.
type endpoint struct {
	mtu  uint32
	mac  tcpip.LinkAddress
	gso  uint32 // largest segment handed over whole; 0: none
	tap  FrameTap
	taps BatchTap // tap, if it is one
	cnt  *counters
	// summed says that the checksums of the frame that is delivered are right.
	summed atomic.Bool // written only by the goroutine that reads the link
	// guard knows the guest's MAC: every frame goes there.
	guard *frameguard.Guard

	mu         sync.RWMutex
	dispatcher stack.NetworkDispatcher
	link       Link

	// Used only by the holder of the txQueue's right to write.
	batch     Batch
	unflushed func()
	flat      []byte // a frame in one piece for the tap
}

func newEndpoint(cfg *Config, cnt *counters, guard *frameguard.Guard) *endpoint {
	e := &endpoint{mtu: uint32(cfg.MTU), mac: tcpip.LinkAddress(cfg.GatewayMAC), tap: cfg.Tap, cnt: cnt, guard: guard}
	e.taps, _ = cfg.Tap.(BatchTap)
	// No CapabilityResolutionRequired: there is one neighbour, and its address
	// is leased, not asked for.
	if cfg.LargeFrames {
		e.gso = gsoMaxSize
	}
	return e
}

// setLink changes where frames go; nil drops them.
func (e *endpoint) setLink(l Link) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.link = l
}

// MTU implements stack.LinkEndpoint.
func (e *endpoint) MTU() uint32 { return e.mtu }

// SetMTU implements stack.LinkEndpoint; the MTU is fixed by Config.
func (e *endpoint) SetMTU(uint32) {}

// MaxHeaderLength implements stack.LinkEndpoint.
func (e *endpoint) MaxHeaderLength() uint16 { return header.EthernetMinimumSize }

// LinkAddress implements stack.LinkEndpoint.
func (e *endpoint) LinkAddress() tcpip.LinkAddress { return e.mac }

// SetLinkAddress implements stack.LinkEndpoint; the MAC is fixed by Config.
func (e *endpoint) SetLinkAddress(tcpip.LinkAddress) {}

// Capabilities implements stack.LinkEndpoint. gVisor asks for each packet: it checks the sums of those that are
// put together of fragments.
func (e *endpoint) Capabilities() stack.LinkEndpointCapabilities {
	if e.summed.Load() {
		return stack.CapabilityRXChecksumOffload
	}
	return 0
}

// GSOMaxSize implements stack.GSOEndpoint.
func (e *endpoint) GSOMaxSize() uint32 { return e.gso }

// SupportedGSO implements stack.GSOEndpoint.
func (e *endpoint) SupportedGSO() stack.SupportedGSO {
	if e.gso == 0 {
		return stack.GSONotSupported
	}
	return stack.HostGSOSupported
}

// Attach implements stack.LinkEndpoint; nil when the NIC is removed.
func (e *endpoint) Attach(d stack.NetworkDispatcher) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.dispatcher = d
}

// IsAttached implements stack.LinkEndpoint.
func (e *endpoint) IsAttached() bool {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.dispatcher != nil
}

// Wait implements stack.LinkEndpoint; Serve's goroutines are not the endpoint's.
func (e *endpoint) Wait() {}

// Close implements stack.LinkEndpoint.
func (e *endpoint) Close() {}

// SetOnCloseAction implements stack.LinkEndpoint.
func (e *endpoint) SetOnCloseAction(func()) {}

// ARPHardwareType implements stack.LinkEndpoint.
func (e *endpoint) ARPHardwareType() header.ARPHardwareType { return header.ARPHardwareEther }

// AddHeader implements stack.LinkEndpoint. gVisor calls it before WritePackets.
func (e *endpoint) AddHeader(pkt *stack.PacketBuffer) {
	header.Ethernet(pkt.LinkHeader().Push(header.EthernetMinimumSize)).Encode(&header.EthernetFields{
		SrcAddr: e.mac,
		DstAddr: tcpip.LinkAddress(e.guard.GuestMAC()),
		Type:    pkt.NetworkProtocolNumber,
	})
}

// ParseHeader implements stack.LinkEndpoint.
func (e *endpoint) ParseHeader(pkt *stack.PacketBuffer) bool {
	_, ok := pkt.LinkHeader().Consume(header.EthernetMinimumSize)
	return ok
}

// deliver hands a frame that the guard let pass to the stack.
func (e *endpoint) deliver(frame []byte) {
	e.mu.RLock()
	d := e.dispatcher
	e.mu.RUnlock()
	if d == nil { // the NIC is gone; gVisor would panic
		return
	}
	pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{
		Payload: buffer.MakeWithView(buffer.NewViewWithData(frame)),
	})
	defer pkt.DecRef()
	if !e.ParseHeader(pkt) {
		return
	}
	if summed := !frameguard.IsFragment(frame); summed != e.summed.Load() {
		e.summed.Store(summed)
	}
	proto := header.Ethernet(frame).Type()
	pkt.NetworkProtocolNumber = proto
	d.DeliverNetworkPacket(proto, pkt)
}

// WritePackets implements stack.LinkEndpoint; frames go through the txQueue, so
// that gVisor has no reason to call it.
func (e *endpoint) WritePackets(stack.PacketBufferList) (int, tcpip.Error) {
	return 0, &tcpip.ErrNotSupported{}
}

// tryWrite writes packets without blocking. False means that flush must follow,
// with the packets kept until it returns. One goroutine at a time.
func (e *endpoint) tryWrite(pkts []*stack.PacketBuffer) bool {
	e.mu.RLock()
	link := e.link
	e.mu.RUnlock()
	if link == nil {
		return true
	}
	e.batch.Reset()
	for _, pkt := range pkts {
		reserveWindow(pkt)
		completeChecksum(pkt)
		e.add(pkt)
		e.cnt.bytes[ToGuest].Add(int64(pkt.Size()))
	}
	e.cnt.frames[ToGuest].Add(int64(len(pkts)))
	e.capture()
	if l, ok := link.(tryWriter); ok {
		done, err := l.tryWriteFrames(&e.batch)
		if done || err != nil {
			e.batch.Reset()
			return true // a broken link ends Serve
		}
		e.unflushed = func() { _ = l.flush() }
		return false
	}
	e.unflushed = func() { _ = link.WriteFrames(&e.batch) }
	return false
}

// flush finishes what tryWrite began; it blocks while the guest does not read.
func (e *endpoint) flush() {
	if e.unflushed != nil {
		e.unflushed()
		e.unflushed = nil
		e.batch.Reset()
	}
}

// add puts the views of a packet into the batch.
func (e *endpoint) add(pkt *stack.PacketBuffer) {
	views, skip := pkt.AsViewList()
	for v := views.Front(); v != nil; v = v.Next() {
		if b := v.AsSlice(); len(b) > skip {
			e.batch.Part(b[skip:])
			skip = 0
		} else {
			skip -= len(b)
		}
	}
	e.batch.End()
}

// capture shows the batch to the tap.
func (e *endpoint) capture() {
	switch {
	case e.tap == nil:
		return
	case e.taps != nil:
		e.taps.Frames(ToGuest, &e.batch)
		return
	}
	for i := range e.batch.Len() {
		e.flat = e.flat[:0]
		for _, p := range e.batch.Frame(i) {
			e.flat = append(e.flat, p...)
		}
		e.tap.Frame(ToGuest, e.flat, "")
	}
}
