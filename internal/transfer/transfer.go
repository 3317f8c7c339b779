package transfer

import "encoding/binary"

const (
	// PieceBytes is the most that one piece holds.
	PieceBytes = 1 << 20

	// BlockBytes is what requests of the guest's begin and end at.
	BlockBytes = 4 << 10

	// ToGuestBytes is the most that a piece to the guest holds. Behind it is its mark.
	ToGuestBytes = PieceBytes - BlockBytes

	// Slots is how many pieces of a call may be on the way.
	Slots = 4

	// Lanes is how many calls use the disk at once, in each direction.
	Lanes = 2

	// DiskBytes is the size of the disk.
	DiskBytes = 2 * Lanes * laneBytes

	laneBytes = Slots * PieceBytes
	markBytes = 8
)

// Direction is who reads a lane.
type Direction int

// The two directions.
const (
	ToGuest Direction = iota
	ToHost
)

// Offset is where piece n of a call is on the disk.
func Offset(d Direction, lane, n int) int64 {
	return int64(int(d)*Lanes+lane)*laneBytes + int64(n%Slots)*PieceBytes
}

// Mark writes the mark of piece n behind its content, the first size bytes of slot, which is PieceBytes long. It returns
// what is to be sent. A machine that goes on where it was saved has an empty disk: a call in its guest that was saved in
// the middle would take zeros for pieces that it was told of.
func Mark(slot []byte, size, n int) []byte {
	at := markAt(size)
	binary.LittleEndian.PutUint64(slot[at:], markOf(n))
	return slot[:at+markBytes]
}

// Marked reports whether the mark of piece n is behind the first size bytes of slot.
func Marked(slot []byte, size, n int) bool {
	return binary.LittleEndian.Uint64(slot[markAt(size):]) == markOf(n)
}

// MarkedBytes is how much a piece of size bytes takes with its mark, in whole blocks.
func MarkedBytes(size int) int { return markAt(size) + BlockBytes }

func markAt(size int) int { return (size + BlockBytes - 1) / BlockBytes * BlockBytes }

// markOf is never 0.
func markOf(n int) uint64 { return uint64(n) + 1 }
