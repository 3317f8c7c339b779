package transfer

const (
	// PieceBytes is the most that one piece holds.
	PieceBytes = 1 << 20

	// Slots is how many pieces of a call may be on the way.
	Slots = 4

	// Lanes is how many calls use the disk at once, in each direction.
	Lanes = 2

	// DiskBytes is the size of the disk.
	DiskBytes = 2 * Lanes * laneBytes

	laneBytes = Slots * PieceBytes
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
