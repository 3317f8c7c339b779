package transfer

import (
	"bytes"
	"testing"
)

// TestNoTwoPiecesShareBytes: slots of all lanes in both directions, which lie within the disk.
func TestNoTwoPiecesShareBytes(t *testing.T) {
	t.Parallel()
	seen := map[int64]bool{}
	for _, d := range []Direction{ToGuest, ToHost} {
		for lane := range Lanes {
			for n := range Slots {
				at := Offset(d, lane, n)
				if at%PieceBytes != 0 || at < 0 || at+PieceBytes > DiskBytes || seen[at] {
					t.Errorf("direction %d, lane %d, piece %d is at %d", d, lane, n, at)
				}
				seen[at] = true
				if again := Offset(d, lane, n+7*Slots); again != at {
					t.Errorf("piece %d is at %d, and seven rounds later at %d", n, at, again)
				}
			}
		}
	}
	if len(seen)*PieceBytes != DiskBytes {
		t.Errorf("%d slots of a disk of %d bytes", len(seen), DiskBytes)
	}
}

// TestMarksLieBehindTheirPieces, in whole blocks of the slot, and an empty disk has none.
func TestMarksLieBehindTheirPieces(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 1, BlockBytes - 1, BlockBytes, BlockBytes + 1, ToGuestBytes - 1, ToGuestBytes} {
		for _, n := range []int{0, 1, 5} {
			slot := make([]byte, PieceBytes)
			if Marked(slot, size, n) {
				t.Errorf("an empty slot has the mark of piece %d", n)
			}
			sent := Mark(slot, size, n)
			if len(sent) <= size || len(sent) > MarkedBytes(size) || MarkedBytes(size) > PieceBytes || MarkedBytes(size)%BlockBytes != 0 {
				t.Errorf("a piece of %d bytes is sent as %d, and read as %d", size, len(sent), MarkedBytes(size))
			}
			if !Marked(slot, size, n) || Marked(slot, size, n+1) || !bytes.Equal(slot[:size], make([]byte, size)) {
				t.Errorf("piece %d of %d bytes has not its mark alone", n, size)
			}
		}
	}
}
