package capture

import (
	"fmt"
)

// Magic numbers of pcap (draft-ietf-opsawg-pcap, section 4): microseconds and nanoseconds.
const (
	magicMicro = 0xa1b2c3d4
	magicNano  = 0xa1b23c4d

	classicFileHead   = 24
	classicPacketHead = 16
)

// classicHead reads the head of a pcap file.
func (r *Reader) classicHead(magic []byte) error {
	for _, o := range [...]byteOrder{littleEndian, bigEndian} {
		switch o.Uint32(magic) {
		case magicMicro:
			r.order, r.scale = o, 1000
		case magicNano:
			r.order, r.scale = o, 1
		}
	}
	if r.order == 0 {
		return fmt.Errorf("%w: it begins with %#x; pcap and pcapng are read", ErrFormat, magic)
	}
	head, err := r.peek(classicFileHead)
	if err != nil {
		return cut(err)
	}
	// The upper bits say whether frames end in a check sequence (section 4).
	if link := uint16(r.order.Uint32(head[20:]) & 0xffff); link != LinkEthernet {
		return foreignLink(link)
	}
	r.use(classicFileHead)
	return nil
}

func (r *Reader) nextClassic() (*Record, error) {
	head, err := r.peek(classicPacketHead)
	if err != nil {
		return nil, err
	}
	have, length := r.order.Uint32(head[8:]), r.order.Uint32(head[12:])
	if have > maxBlock || length > maxBlock {
		return nil, fmt.Errorf("%w: a packet of %d bytes", ErrFormat, max(have, length))
	}
	seconds, fraction := int64(r.order.Uint32(head)), int64(r.order.Uint32(head[4:]))
	all, err := r.peek(classicPacketHead + int(have))
	if err != nil {
		return nil, cut(err)
	}
	r.record = Record{
		Kind: PacketRecord, Offset: r.offset, Direction: UnknownDirection,
		Time: seconds*1e9 + fraction*r.scale, Frame: all[classicPacketHead:], Length: int(length),
	}
	r.use(len(all))
	return &r.record, nil
}
