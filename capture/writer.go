package capture

import (
	"io"
	"net/netip"
	"strings"
	"sync"
	"time"
)

// Writer writes a capture. Its methods may be called from any goroutine, and none but Close waits for
// the disk.
type Writer struct {
	options Options
	out     output
	start   uint64

	mu    sync.Mutex
	batch *batch   // being gathered
	queue []*batch // full, oldest first
	spare [][]byte
	// flushing counts the batches that the disk is being given.
	flushing int
	closed   bool
	names    nameTable
	packets  uint64 // taken
	dropped  uint64 // lost in all
	missing  uint64 // lost since the last packet taken
	verdicts int    // that found no packet
	err      error

	wake chan struct{} // the batch is no longer empty
	full chan struct{} // the batch should be written now
	stop chan struct{}
	done chan struct{}
}

// Ticket stands for a packet that was taken; see Annotate. The zero Ticket stands for none.
type Ticket struct {
	batch  uint64
	offset int
}

// batch is whole blocks that wait to be written, with the comments that came for them since. It has room
// for batchBytes; only a block that is larger than that alone grows it.
type batch struct {
	id      uint64
	blocks  []byte
	notes   map[int][]string // by the offset of the packet's block
	noted   int              // bytes of notes
	packets uint64
	// copies are the runs of packets whose place is reserved and whose bytes are still on their way there.
	copies sync.WaitGroup
}

// NewWriter returns a Writer on w, which it closes on Close if it is an io.Closer. The caller must Close
// it.
func NewWriter(w io.Writer, o Options) *Writer {
	o = o.withDefaults()
	return newWriter(&stream{w: w, head: preamble(&o)}, o)
}

// Create returns a Writer on a new file at path, mode 0600. What is there, if it holds anything, is rotated like a full
// part: path is renamed to path.1, path.1 to path.2, and so on; each file stands for itself. The file is locked: ErrBusy if another Writer, of any process, writes to it.
func Create(path string, o Options) (*Writer, error) {
	o = o.withDefaults()
	f, err := createRotating(path, &o)
	if err != nil {
		return nil, err
	}
	return newWriter(f, o), nil
}

func newWriter(out output, o Options) *Writer {
	w := &Writer{
		options: o, out: out, start: nano(o.now()),
		batch: &batch{id: 1},
		wake:  make(chan struct{}, 1), full: make(chan struct{}, 1),
		stop: make(chan struct{}), done: make(chan struct{}),
	}
	go w.run()
	return w
}

// nano is t in nanoseconds since 1970; pcapng has no times before.
func nano(t time.Time) uint64 { return uint64(max(t.UnixNano(), 0)) }

// Packet takes one frame, which is copied, with a comment that may be empty. It returns the zero Ticket
// if the frame was lost because the disk is behind.
func (w *Writer) Packet(dir Direction, frame []byte, comment string) Ticket {
	parts := [1][]byte{frame}
	kept := w.kept(parts[:])
	p := w.reserve(1, packetSize(kept, comment))
	if p.batch == nil {
		return Ticket{}
	}
	p.fill(dir, parts[:], kept, comment)
	p.filled()
	return Ticket{p.batch.id, p.at}
}

// Annotate adds a comment to a packet that was taken a moment ago. It reports false if the packet is on
// its way to the disk already, or has too many beside it: put the comment on a later packet of the flow then.
func (w *Writer) Annotate(t Ticket, comment string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	b := w.waiting(t.batch)
	if w.closed || b == nil || b.noted+len(comment) > maxNotes {
		return false
	}
	b.noted += len(comment)
	if b.notes == nil {
		b.notes = make(map[int][]string)
	}
	b.notes[t.offset] = append(b.notes[t.offset], comment)
	return true
}

// waiting returns the batch of that id if it is not on its way to the disk; the caller holds mu.
func (w *Writer) waiting(id uint64) *batch {
	if id == w.batch.id {
		return w.batch
	}
	for _, b := range w.queue {
		if b.id == id {
			return b
		}
	}
	return nil
}

// Names writes a name resolution record: name was given these addresses. Repeats are left out.
func (w *Writer) Names(name string, addrs []netip.Addr) {
	if name == "" || len(name) > maxName || strings.IndexByte(name, 0) >= 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if addrs = w.names.add(name, addrs); len(addrs) == 0 {
		return
	}
	if b := w.room(len(addrs) * (len(name) + 32)); b != nil {
		b.blocks = namesBlock(b.blocks, name, addrs)
	}
}

// TLSKeys writes lines of an NSS key log, so that tools can decrypt the sessions they belong to. Keys of
// the guest's own sessions with the gateway only: what the gateway says to servers holds real secrets.
func (w *Writer) TLSKeys(lines []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(lines) == 0 || len(lines) > maxKeys {
		return
	}
	if b := w.room(len(lines) + packetOverhead); b != nil {
		b.blocks = secretsBlock(b.blocks, lines)
	}
}

// room returns the batch that takes n more bytes, and nil if they would be more than may wait; the caller
// holds mu.
func (w *Writer) room(n int) *batch {
	b := w.batch
	switch {
	case w.closed:
		return nil
	case len(b.blocks) == 0:
		poke(w.wake)
		return w.fresh(b)
	case len(b.blocks)+n <= batchBytes:
		return b
	case (w.flushing+len(w.queue)+2)*batchBytes > w.options.Queue:
		return nil
	}
	w.queue = append(w.queue, b)
	w.batch = &batch{id: b.id + 1}
	poke(w.full)
	return w.fresh(w.batch)
}

// fresh gives an empty batch its memory.
func (w *Writer) fresh(b *batch) *batch {
	if n := len(w.spare); cap(b.blocks) == 0 && n > 0 {
		b.blocks = w.spare[n-1][:0]
		w.spare = w.spare[:n-1]
	} else if cap(b.blocks) == 0 {
		b.blocks = alignedBuffer(batchBytes)
	}
	return b
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// LoseVerdicts counts verdicts of which the capture holds no packet that could have them as comments: its end says so.
func (w *Writer) LoseVerdicts(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.verdicts += n
}

// Stats says how many packets were taken, and how many were lost.
func (w *Writer) Stats() (packets, dropped uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.packets, w.dropped
}

// Err returns the first error of writing. The capture goes on after one: a full disk may have room again.
func (w *Writer) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Close writes what waits and how many packets were lost, and closes the file. It returns the first
// error of writing.
func (w *Writer) Close() error {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return ErrClosed
	}
	w.closed = true
	w.mu.Unlock()
	close(w.stop)
	<-w.done
	return w.Err()
}
