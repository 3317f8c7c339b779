package netstack

// Batch is frames to be written, each in parts. Its slices are used again, so
// that filling it allocates nothing once it has grown.
type Batch struct {
	parts [][]byte
	ends  []int // for each frame, the index in parts after its last
}

// Reset empties the batch.
func (b *Batch) Reset() {
	clear(b.parts) // keep no frame alive
	b.parts, b.ends = b.parts[:0], b.ends[:0]
}

// Part adds a part to the frame that End will close.
func (b *Batch) Part(p []byte) { b.parts = append(b.parts, p) }

// End closes the frame that the parts since the last End make.
func (b *Batch) End() { b.ends = append(b.ends, len(b.parts)) }

// Len is the number of frames.
func (b *Batch) Len() int { return len(b.ends) }

// Frame returns the parts of frame i.
func (b *Batch) Frame(i int) [][]byte {
	start := 0
	if i > 0 {
		start = b.ends[i-1]
	}
	return b.parts[start:b.ends[i]]
}
