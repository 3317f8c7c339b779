package capture

import (
	"encoding/binary"
	"net/netip"
)

// Block types and option codes of pcapng (draft-ietf-opsawg-pcapng, sections 4 and 3.5).
const (
	blockSection    = 0x0a0d0d0a
	blockInterface  = 1
	blockSimple     = 3
	blockNames      = 4
	blockStatistics = 5
	blockPacket     = 6
	blockSecrets    = 10

	byteOrderMagic = 0x1a2b3c4d

	optEnd     = 0
	optComment = 1

	optSectionApplication = 4

	optInterfaceName        = 2
	optInterfaceDescription = 3
	optInterfaceResolution  = 9
	optInterfaceOffset      = 14

	optPacketFlags = 2
	optPacketDrops = 4

	optStatisticsStart    = 2
	optStatisticsEnd      = 3
	optStatisticsReceived = 4
	optStatisticsDropped  = 5

	nameRecordEnd  = 0
	nameRecordIPv4 = 1
	nameRecordIPv6 = 2

	secretsTLSKeyLog = 0x544c534b

	flagInbound  = 1
	flagOutbound = 2
)

const (
	// blockOverhead is type, length and length again.
	blockOverhead = 12
	// packetHead is what an enhanced packet block has before the frame, type and length included.
	packetHead = 28
	// packetOverhead is more than a packet's block has beside frame and comment.
	packetOverhead = 80
	// nanoseconds is if_tsresol for times in 1e-9 s.
	nanoseconds = 9
	// maxComment bounds a comment in bytes; an option's length has 16 bits.
	maxComment = 4096
	// maxName is longer than any host name (RFC 1035: 253).
	maxName = 255
)

var order = binary.LittleEndian

// begin starts a block at the end of b.
func begin(b []byte, kind uint32) []byte {
	b = order.AppendUint32(b, kind)
	return order.AppendUint32(b, 0) // its length, which end fills in
}

// end closes the block that starts at from.
func end(b []byte, from int) []byte {
	n := uint32(len(b) - from + 4)
	order.PutUint32(b[from+4:], n)
	return order.AppendUint32(b, n)
}

func pad(b []byte) []byte {
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

// option appends one option; b must be aligned relative to its block, which all blocks here are, as
// batches hold whole blocks only.
func option(b []byte, code uint16, value []byte) []byte {
	b = order.AppendUint16(b, code)
	b = order.AppendUint16(b, uint16(len(value)))
	b = append(b, value...)
	return pad(b)
}

func option64(b []byte, code uint16, v uint64) []byte {
	return option(b, code, order.AppendUint64(nil, v))
}

// optionTime appends a time as these blocks write it: the high half first, whatever the byte order.
func optionTime(b []byte, code uint16, ns uint64) []byte {
	v := order.AppendUint32(nil, uint32(ns>>32))
	return option(b, code, order.AppendUint32(v, uint32(ns)))
}

func comment(b []byte, text string) []byte {
	if text == "" {
		return b
	}
	if len(text) > maxComment {
		text = text[:maxComment]
	}
	return option(b, optComment, []byte(text))
}

func endOptions(b []byte) []byte { return order.AppendUint32(b, optEnd) }

// preamble is what every file begins with.
func preamble(o *Options) []byte {
	from := 0
	b := begin(nil, blockSection)
	b = order.AppendUint32(b, byteOrderMagic)
	b = order.AppendUint16(b, 1)
	b = order.AppendUint16(b, 0)
	b = order.AppendUint64(b, ^uint64(0)) // the section's length is not known
	b = comment(b, o.Comment)
	if o.recording != "" {
		b = comment(b, recordingPrefix+o.recording)
	}
	b = option(b, optSectionApplication, []byte("msb"))
	b = end(endOptions(b), from)

	from = len(b)
	b = begin(b, blockInterface)
	b = order.AppendUint16(b, LinkEthernet)
	b = order.AppendUint16(b, 0)
	b = order.AppendUint32(b, uint32(o.SnapLen))
	b = option(b, optInterfaceName, []byte("guest"))
	b = option(b, optInterfaceDescription, []byte("the guest's end of its link, before the gateway"))
	b = option(b, optInterfaceResolution, []byte{nanoseconds})
	return end(endOptions(b), from)
}

// dropsSize is how much longer a block is that tells of drops.
const dropsSize = 12

// packetSize is how long packetBlock's block gets without drops.
func packetSize(kept int, text string) int {
	const flags, last = 8, 8 // the flags' option; the end of options and the length again
	n := packetHead + aligned4(kept) + flags + last
	if text != "" {
		n += 4 + aligned4(min(len(text), maxComment))
	}
	return n
}

func aligned4(n int) int { return (n + 3) &^ 3 }

// packetBlock appends an enhanced packet block with the first kept bytes of a frame that comes in parts.
// drops is how many packets were lost right before it.
func packetBlock(b []byte, ns uint64, dir Direction, parts [][]byte, kept int, text string, drops uint64) []byte {
	from := len(b)
	length := 0
	var head [packetHead]byte
	b = append(b, head[:]...)
	for _, p := range parts {
		length += len(p)
		b = append(b, p[:min(len(p), kept+packetHead+from-len(b))]...)
	}
	order.PutUint32(b[from:], blockPacket) // end fills in its length; the interface is 0
	order.PutUint32(b[from+12:], uint32(ns>>32))
	order.PutUint32(b[from+16:], uint32(ns))
	order.PutUint32(b[from+20:], uint32(min(kept, length)))
	order.PutUint32(b[from+24:], uint32(length))
	b = comment(pad(b), text)
	b = order.AppendUint32(b, 4<<16|optPacketFlags)
	flags := uint32(flagOutbound)
	if dir == ToGuest {
		flags = flagInbound
	}
	b = order.AppendUint32(b, flags)
	if drops > 0 {
		b = option64(b, optPacketDrops, drops)
	}
	return end(endOptions(b), from)
}

// namesBlock appends a name resolution block.
func namesBlock(b []byte, name string, addrs []netip.Addr) []byte {
	from := len(b)
	b = begin(b, blockNames)
	for _, a := range addrs {
		kind := uint16(nameRecordIPv4)
		if a.Is6() {
			kind = nameRecordIPv6
		}
		raw := a.AsSlice()
		b = order.AppendUint16(b, kind)
		b = order.AppendUint16(b, uint16(len(raw)+len(name)+1))
		b = append(b, raw...)
		b = append(b, name...)
		b = pad(append(b, 0))
	}
	b = order.AppendUint32(b, nameRecordEnd)
	return end(b, from)
}

// secretsBlock appends a decryption secrets block with lines of an NSS key log.
func secretsBlock(b, lines []byte) []byte {
	from := len(b)
	b = begin(b, blockSecrets)
	b = order.AppendUint32(b, secretsTLSKeyLog)
	b = order.AppendUint32(b, uint32(len(lines)))
	b = pad(append(b, lines...))
	return end(b, from)
}

// statisticsBlock appends an interface statistics block. verdicts is how many are in no comment.
func statisticsBlock(b []byte, start, now, received, dropped uint64, verdicts int) []byte {
	from := len(b)
	b = begin(b, blockStatistics)
	b = order.AppendUint32(b, 0) // interface
	b = order.AppendUint32(b, uint32(now>>32))
	b = order.AppendUint32(b, uint32(now))
	if dropped > 0 {
		b = comment(b, "packets are missing: they came faster than they could be written")
	}
	if verdicts > 0 {
		b = comment(b, LostVerdicts(verdicts))
	}
	b = optionTime(b, optStatisticsStart, start)
	b = optionTime(b, optStatisticsEnd, now)
	b = option64(b, optStatisticsReceived, received)
	b = option64(b, optStatisticsDropped, dropped)
	return end(endOptions(b), from)
}
