package capture

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"net/netip"
	"strings"
)

// maxSeconds is the year 2106, and small enough that nanoseconds fit into 64 bits.
const maxSeconds = 1 << 32

// nextBlock reads blocks until one is a record.
func (r *Reader) nextBlock() (*Record, error) {
	for {
		if len(r.pending) > 0 {
			n := r.pending[0]
			r.pending = r.pending[1:]
			r.record = Record{Kind: NameRecord, Offset: r.record.Offset, Addr: n.addr, Names: n.names}
			return &r.record, nil
		}
		kind, block, err := r.block()
		if err != nil {
			return nil, err
		}
		found, err := r.take(kind, block[8:len(block)-4])
		if err != nil {
			return nil, err // the offset is still that of the block
		}
		r.use(len(block))
		if found {
			return &r.record, nil
		}
	}
}

// block returns the next block, whole and unused.
func (r *Reader) block() (kind uint32, block []byte, err error) {
	head, err := r.peek(blockOverhead)
	if err != nil {
		return 0, nil, err
	}
	if r.order == 0 || binary.LittleEndian.Uint32(head) == blockSection {
		if err := r.byteOrder(head); err != nil {
			return 0, nil, err
		}
	}
	kind = r.order.Uint32(head)
	length := r.order.Uint32(head[4:])
	if length < blockOverhead || length%4 != 0 || length > maxBlock {
		return 0, nil, fmt.Errorf("%w: a block of %d bytes", ErrFormat, length)
	}
	if block, err = r.peek(int(length)); err != nil {
		return 0, nil, cut(err)
	}
	if again := r.order.Uint32(block[length-4:]); again != length {
		return 0, nil, fmt.Errorf("%w: a block's length is %d at its start and %d at its end", ErrFormat, length, again)
	}
	return kind, block, nil
}

// byteOrder reads the byte order of a section from the head of its first block.
func (r *Reader) byteOrder(head []byte) error {
	switch {
	case binary.LittleEndian.Uint32(head) != blockSection:
		return fmt.Errorf("%w: no section header", ErrFormat)
	case binary.LittleEndian.Uint32(head[8:]) == byteOrderMagic:
		r.order = littleEndian
	case binary.BigEndian.Uint32(head[8:]) == byteOrderMagic:
		r.order = bigEndian
	default:
		return fmt.Errorf("%w: a section of unknown byte order", ErrFormat)
	}
	return nil
}

// take reads a block's body and reports whether r.record is now a record.
func (r *Reader) take(kind uint32, body []byte) (bool, error) {
	switch kind {
	case blockSection:
		r.ifaces = r.ifaces[:0]
		if len(body) < 16 || r.order.Uint16(body[4:]) != 1 {
			return false, fmt.Errorf("%w: a section of another version of pcapng", ErrFormat)
		}
		r.takeSection(body[16:])
	case blockInterface:
		return false, r.takeInterface(body)
	case blockPacket:
		return r.takePacket(body)
	case blockSimple:
		return r.takeSimple(body)
	case blockNames:
		return false, r.takeNames(body)
	case blockSecrets:
		return r.takeSecrets(body)
	case blockStatistics:
		if len(body) < 12 {
			return false, fmt.Errorf("%w: statistics of %d bytes", ErrFormat, len(body))
		}
		_ = r.options(body[12:], func(code uint16, value []byte) { // what can't be read says nothing that is needed
			if code == optComment {
				r.lostVerdicts += ParseLostVerdicts(string(value))
			}
		})
	}
	return false, nil
}

// takeSection reads of which recording the file is. Options that can't be read say nothing that is needed.
func (r *Reader) takeSection(options []byte) {
	_ = r.options(options, func(code uint16, value []byte) {
		if name, ok := strings.CutPrefix(string(value), recordingPrefix); ok && code == optComment && r.of == "" {
			r.of = name
		}
	})
}

func (r *Reader) takeInterface(body []byte) error {
	if len(body) < 8 {
		return fmt.Errorf("%w: an interface of %d bytes", ErrFormat, len(body))
	}
	if len(r.ifaces) == maxInterfaces {
		return fmt.Errorf("%w: more than %d interfaces", ErrFormat, maxInterfaces)
	}
	i := iface{link: r.order.Uint16(body), snap: r.order.Uint32(body[4:]), units: 1e6}
	err := r.options(body[8:], func(code uint16, value []byte) {
		switch {
		case code == optInterfaceResolution && len(value) == 1:
			i.setResolution(value[0])
		case code == optInterfaceOffset && len(value) == 8:
			i.offset = int64(r.order.Uint64(value))
		}
	})
	r.ifaces = append(r.ifaces, i)
	return err
}

// setResolution reads if_tsresol: a negative power of ten, or of two with the top bit set.
func (i *iface) setResolution(v byte) {
	if v&0x80 != 0 {
		i.units, i.shift = 0, v&0x7f
		return
	}
	if v > 19 { // 10^20 is over 64 bits; such times are of no use
		v = 19
	}
	i.units = 1
	for range v {
		i.units *= 10
	}
}

// nanoseconds turns a timestamp into nanoseconds since 1970, as far as they have room.
func (i *iface) nanoseconds(ts uint64) int64 {
	var sec, ns uint64
	switch {
	case i.units == 1e9:
		sec, ns = ts/1e9, ts%1e9
	case i.units > 0:
		sec = ts / i.units
		hi, lo := bits.Mul64(ts%i.units, 1e9)
		ns, _ = bits.Div64(hi, lo, i.units)
	case i.shift < 64:
		sec = ts >> i.shift
		hi, lo := bits.Mul64(ts&(1<<i.shift-1), 1e9)
		ns = hi<<(64-i.shift) | lo>>i.shift
	}
	if sec > maxSeconds || i.offset > maxSeconds || i.offset < -maxSeconds {
		return 0
	}
	return (int64(sec)+i.offset)*1e9 + int64(ns)
}

func (r *Reader) takePacket(body []byte) (bool, error) {
	if len(body) < 20 {
		return false, fmt.Errorf("%w: a packet block of %d bytes", ErrFormat, len(body))
	}
	index, have, length := r.order.Uint32(body), r.order.Uint32(body[12:]), r.order.Uint32(body[16:])
	if int64(index) >= int64(len(r.ifaces)) {
		return false, fmt.Errorf("%w: a packet of interface %d, of which nothing was said", ErrFormat, index)
	}
	if int64(have) > int64(len(body)-20) || length > math.MaxInt32 {
		return false, fmt.Errorf("%w: a packet of %d bytes in a block of %d", ErrFormat, have, len(body)+blockOverhead)
	}
	from := &r.ifaces[index]
	if from.link != LinkEthernet {
		r.noteForeign(from.link)
		return false, nil
	}
	ts := uint64(r.order.Uint32(body[4:]))<<32 | uint64(r.order.Uint32(body[8:]))
	r.record = Record{
		Kind: PacketRecord, Offset: r.offset, Direction: UnknownDirection,
		Time: from.nanoseconds(ts), Frame: body[20 : 20+have], Length: int(length),
	}
	rest := body[20+have:]
	return true, r.options(rest[min(len(rest), int(-have&3)):], r.packetOption)
}

func (r *Reader) packetOption(code uint16, value []byte) {
	switch {
	case code == optComment:
		r.record.Comments = append(r.record.Comments, string(value))
	case code == optPacketFlags && len(value) == 4:
		switch r.order.Uint32(value) & 3 {
		case flagOutbound:
			r.record.Direction = FromGuest
		case flagInbound:
			r.record.Direction = ToGuest
		}
	case code == optPacketDrops && len(value) == 8:
		r.record.Lost = r.order.Uint64(value)
		r.lost += r.record.Lost
	}
}

func (r *Reader) takeSimple(body []byte) (bool, error) {
	if len(body) < 4 || len(r.ifaces) == 0 {
		return false, fmt.Errorf("%w: a packet without an interface", ErrFormat)
	}
	length := r.order.Uint32(body)
	have := length
	if snap := r.ifaces[0].snap; snap > 0 {
		have = min(have, snap)
	}
	if int64(have) > int64(len(body)-4) {
		return false, fmt.Errorf("%w: a packet of %d bytes in a block of %d", ErrFormat, have, len(body)+blockOverhead)
	}
	if link := r.ifaces[0].link; link != LinkEthernet {
		r.noteForeign(link)
		return false, nil
	}
	r.record = Record{
		Kind: PacketRecord, Offset: r.offset, Direction: UnknownDirection,
		Frame: body[4 : 4+have], Length: int(length),
	}
	return true, nil
}

func (r *Reader) takeNames(body []byte) error {
	r.record.Offset = r.offset
	for len(body) >= 4 {
		kind, n := r.order.Uint16(body), int(r.order.Uint16(body[2:]))
		if kind == nameRecordEnd {
			return nil
		}
		padded := (n + 3) &^ 3
		if padded > len(body)-4 {
			return fmt.Errorf("%w: a name record of %d bytes", ErrFormat, n)
		}
		value := body[4 : 4+n]
		body = body[4+padded:]
		size := map[uint16]int{nameRecordIPv4: 4, nameRecordIPv6: 16}[kind]
		if size == 0 || len(value) < size {
			continue
		}
		addr, _ := netip.AddrFromSlice(value[:size])
		entry := nameAddrs{addr: addr}
		for rest := value[size:]; len(rest) > 0; {
			var name string
			name, rest = cString(rest)
			if name != "" {
				entry.names = append(entry.names, name)
			}
		}
		r.pending = append(r.pending, entry)
	}
	return nil
}

func (r *Reader) takeSecrets(body []byte) (bool, error) {
	if len(body) < 8 {
		return false, fmt.Errorf("%w: secrets of %d bytes", ErrFormat, len(body))
	}
	n := r.order.Uint32(body[4:])
	if int64(n) > int64(len(body)-8) {
		return false, fmt.Errorf("%w: secrets of %d bytes in a block of %d", ErrFormat, n, len(body)+blockOverhead)
	}
	if r.order.Uint32(body) != secretsTLSKeyLog {
		return false, nil
	}
	r.record = Record{Kind: KeysRecord, Offset: r.offset, Keys: body[8 : 8+n]}
	return true, nil
}

// options walks the options at the end of a block.
func (r *Reader) options(b []byte, take func(code uint16, value []byte)) error {
	for len(b) >= 4 {
		code, n := r.order.Uint16(b), int(r.order.Uint16(b[2:]))
		if code == optEnd {
			return nil
		}
		padded := (n + 3) &^ 3
		if padded > len(b)-4 {
			return fmt.Errorf("%w: an option of %d bytes", ErrFormat, n)
		}
		take(code, b[4:4+n])
		b = b[4+padded:]
	}
	return nil
}
