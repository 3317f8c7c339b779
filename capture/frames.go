package capture

// Frames are frames in parts, such as headers and payloads that lie apart. Frame i is the bytes of
// Frame(i), one after the other.
type Frames interface {
	Len() int
	Frame(i int) [][]byte
}

// Packets takes several frames at once, all as of now and without comments. It is Packet for the path
// that bulk data takes: nothing is put together first, and there is one lock and one look at the clock.
func (w *Writer) Packets(dir Direction, frames Frames) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := nano(w.options.now())
	for i := range frames.Len() {
		w.packet(dir, now, frames.Frame(i), "")
	}
}

// packet is Packet in parts; the caller holds mu.
func (w *Writer) packet(dir Direction, ns uint64, parts [][]byte, text string) Ticket {
	length := 0
	for _, p := range parts {
		length += len(p)
	}
	kept := min(length, w.options.SnapLen)
	b := w.room(kept + min(len(text), maxComment) + packetOverhead)
	if b == nil {
		w.dropped++
		w.missing++
		return Ticket{}
	}
	t := Ticket{b.id, len(b.blocks)}
	b.blocks = packetBlock(b.blocks, ns, dir, parts, kept, text, w.missing)
	w.packets++
	b.packets++
	w.missing = 0
	return t
}
