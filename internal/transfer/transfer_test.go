package transfer

import "testing"

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
