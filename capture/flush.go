package capture

import (
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// run is the goroutine that writes. It lets a batch gather for a moment, unless it is full before.
func (w *Writer) run() {
	defer close(w.done)
	gather := time.NewTimer(batchTime)
	gather.Stop()
	for {
		select {
		case <-w.wake:
			gather.Reset(batchTime)
		case <-gather.C:
			w.flush(true)
		case <-w.full:
			w.flush(false)
		case <-w.stop:
			w.finish()
			return
		}
	}
}

// flush writes the full batches, and if gathered is set the one that is being gathered too. What comes meanwhile
// gathers again.
func (w *Writer) flush(gathered bool) {
	w.mu.Lock()
	all := w.queue
	w.queue = nil
	if gathered && len(w.batch.blocks) > 0 {
		all = append(all, w.batch)
		w.batch = &batch{id: w.batch.id + 1}
	}
	w.flushing = len(all)
	names := w.names
	w.mu.Unlock()
	for _, b := range all {
		b.copies.Wait() // nothing more is reserved in it
		w.written(b, w.write(b, names, w.calm()))
	}
}

// calm reports whether less than half of the queue waits.
func (w *Writer) calm() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return 2*(w.flushing+len(w.queue))*batchBytes <= w.options.Queue
}

// written counts what was lost with a batch, and keeps its memory.
func (w *Writer) written(b *batch, err error) {
	w.note(err)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.flushing--
	if err != nil {
		w.packets -= b.packets
		w.dropped += b.packets
		w.missing += b.packets
	}
	if len(w.spare) < maxSpare && cap(b.blocks) <= 2*batchBytes && aligned(b.blocks) {
		w.spare = append(w.spare, b.blocks)
	}
}

func (w *Writer) write(b *batch, names nameTable, calm bool) error {
	again := func() []byte { return names.blocks(nil) }
	if len(b.notes) == 0 {
		return w.out.write(b.blocks, again, calm)
	}
	offsets := make([]int, 0, len(b.notes))
	for at := range b.notes {
		offsets = append(offsets, at)
	}
	slices.Sort(offsets)
	annotated := alignedBuffer(len(b.blocks) + len(offsets)*256)
	from := 0
	for _, at := range offsets {
		annotated = append(annotated, b.blocks[from:at]...)
		n := int(order.Uint32(b.blocks[at+4:]))
		annotated = annotate(annotated, b.blocks[at:at+n], b.notes[at])
		from = at + n
	}
	annotated = append(annotated, b.blocks[from:]...)
	return w.out.write(annotated, again, calm)
}

// annotate appends a packet block with comments before its other options.
func annotate(b, block []byte, comments []string) []byte {
	from := len(b)
	frame := int(order.Uint32(block[packetHead-8:]))
	options := packetHead + (frame+3)&^3
	b = append(b, block[:options]...)
	for _, text := range comments {
		b = comment(b, text)
	}
	b = append(b, block[options:len(block)-4]...)
	return end(b, from)
}

// finish writes what is left and the statistics.
func (w *Writer) finish() {
	w.flush(true)
	w.mu.Lock()
	packets, dropped, verdicts := w.packets, w.dropped, w.verdicts
	w.mu.Unlock()
	stats := statisticsBlock(nil, w.start, nano(w.options.now()), packets+dropped, dropped, verdicts)
	w.note(w.out.write(stats, func() []byte { return nil }, false)) // never a part of their own
	w.note(w.out.close())
}

func (w *Writer) note(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil && w.err == nil {
		w.err = fmt.Errorf("the capture can't be written: %w", err)
	}
}

// nameTable remembers which names were written, so that they are written once and a rotated file can
// repeat them.
type nameTable struct {
	seen  map[nameAddr]struct{}
	order []nameAddr
}

type nameAddr struct {
	name string
	addr netip.Addr
}

// add returns the addresses that are new for name.
func (t *nameTable) add(name string, addrs []netip.Addr) []netip.Addr {
	var fresh []netip.Addr
	for _, a := range addrs {
		key := nameAddr{name, a.Unmap().WithZone("")}
		if _, known := t.seen[key]; known || !a.IsValid() {
			continue
		}
		if t.seen == nil || len(t.order) >= maxNames {
			// Forgetting all at the bound costs repeats and keeps this simple; readers take repeats.
			t.seen, t.order = make(map[nameAddr]struct{}), nil
		}
		t.seen[key] = struct{}{}
		t.order = append(t.order, key)
		fresh = append(fresh, key.addr)
	}
	return fresh
}

func (t *nameTable) blocks(b []byte) []byte {
	for _, n := range t.order {
		b = namesBlock(b, n.name, []netip.Addr{n.addr})
	}
	return b
}
