package capture

import "slices"

// Frames are frames in parts, such as headers and payloads that lie apart. Frame i is the bytes of
// Frame(i), one after the other.
type Frames interface {
	Len() int
	Frame(i int) [][]byte
}

// atOnce is how many frames get their places under one lock.
const atOnce = 64

// Packets takes several frames at once, all as of now and without comments. It is Packet for the path
// that bulk data takes: nothing is put together first, and there is one lock and one look at the clock.
func (w *Writer) Packets(dir Direction, frames Frames) {
	var places [atOnce]place
	for from := 0; from < frames.Len(); from += atOnce {
		some := places[:min(atOnce, frames.Len()-from)]
		w.mu.Lock()
		for i := range some {
			some[i].reserve(w, frames.Frame(from+i), "")
		}
		ns := nano(w.options.now())
		w.mu.Unlock()
		for i := range some {
			if p := &some[i]; p.batch != nil {
				p.fill(ns, dir, frames.Frame(from+i), "")
				p.batch.copies.Done()
				*p = place{}
			}
		}
	}
}

// place is where a packet's block goes. It is reserved under the writer's lock and filled without: the
// guest's two directions would wait for each other's copies.
type place struct {
	batch  *batch // nil: the packet is lost
	ticket Ticket
	block  []byte // empty, with room for exactly the block
	kept   int
	drops  uint64
}

// reserve takes room for a packet; the caller holds w.mu.
func (p *place) reserve(w *Writer, parts [][]byte, text string) {
	length := 0
	for _, part := range parts {
		length += len(part)
	}
	p.kept, p.drops = min(length, w.options.SnapLen), w.missing
	size := packetSize(p.kept, text, p.drops)
	b := w.room(size)
	if b == nil {
		w.dropped++
		w.missing++
		return
	}
	at := len(b.blocks)
	b.blocks = slices.Grow(b.blocks, size)[:at+size] // only a block beyond batchBytes, alone in its batch, grows it
	p.batch, p.block, p.ticket = b, b.blocks[at:at:at+size], Ticket{b.id, at}
	b.copies.Add(1)
	w.packets++
	b.packets++
	w.missing = 0
}

// fill writes the block.
func (p *place) fill(ns uint64, dir Direction, parts [][]byte, text string) {
	packetBlock(p.block, ns, dir, parts, p.kept, text, p.drops)
}
