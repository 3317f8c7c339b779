package capture

import "slices"

// Frames are frames in parts, such as headers and payloads that lie apart. Frame i is the bytes of
// Frame(i), one after the other.
type Frames interface {
	Len() int
	Frame(i int) [][]byte
}

// maxRun is how many bytes of frames get their place under one lock.
const maxRun = 256 << 10

// Packets takes several frames at once, all as of now and without comments. It is Packet for the path
// that bulk data takes: nothing is put together first, and there is one lock and one look at the clock.
func (w *Writer) Packets(dir Direction, frames Frames) {
	for from := 0; from < frames.Len(); {
		to, size := from, 0
		for ; to < frames.Len() && (to == from || size < maxRun); to++ {
			size += packetSize(w.kept(frames.Frame(to)), "")
		}
		p := w.reserve(to-from, size)
		for ; from < to; from++ {
			if p.batch != nil {
				p.fill(dir, frames.Frame(from), w.kept(frames.Frame(from)), "")
			}
		}
		p.filled()
	}
}

// kept is how many bytes of a frame are kept.
func (w *Writer) kept(parts [][]byte) int {
	length := 0
	for _, part := range parts {
		length += len(part)
	}
	return min(length, w.options.SnapLen)
}

// place is where the blocks of packets go. It is reserved under the writer's lock and filled without: the
// guest's two directions would wait for each other's copies.
type place struct {
	batch *batch // nil: the packets are lost
	at    int
	room  []byte // empty, with room for exactly the blocks
	drops uint64 // lost before the first
	ns    uint64
}

// reserve takes room for packets whose blocks have size bytes together, if none was lost before them.
func (w *Writer) reserve(packets, size int) place {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.missing > 0 {
		size += dropsSize
	}
	b := w.room(size)
	if b == nil {
		w.dropped += uint64(packets)
		w.missing += uint64(packets)
		return place{}
	}
	at := len(b.blocks)
	b.blocks = slices.Grow(b.blocks, size)[:at+size] // only what is beyond batchBytes, alone in its batch, grows it
	p := place{batch: b, at: at, room: b.blocks[at : at : at+size], drops: w.missing, ns: nano(w.options.now())}
	b.copies.Add(1)
	w.packets += uint64(packets)
	b.packets += uint64(packets)
	w.missing = 0
	return p
}

// fill writes the next packet's block.
func (p *place) fill(dir Direction, parts [][]byte, kept int, text string) {
	from := len(p.room)
	block := packetBlock(p.room[from:], p.ns, dir, parts, kept, text, p.drops)
	p.room, p.drops = p.room[:from+len(block)], 0
}

// filled lets the blocks go to the disk.
func (p *place) filled() {
	if p.batch != nil {
		p.batch.copies.Done()
	}
}
