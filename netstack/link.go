package netstack

// Link carries whole Ethernet frames. One goroutine reads, one writes.
type Link interface {
	// ReadFrame returns the next frame; the slice is valid until the next
	// call. Of a frame above MaxFrame it returns the first MaxFrame+1 bytes, so
	// that it can be counted. io.EOF when the peer has gone.
	ReadFrame() ([]byte, error)
	// WriteFrames sends the frames of b. It blocks while the peer does not
	// read, and fails after Close.
	WriteFrames(b *Batch) error
	// Close ends reads and writes that are under way.
	Close() error
}

// readAhead is a Link that may have read more than it returned. ready reports
// that the next ReadFrame neither waits nor touches frames returned before.
type readAhead interface {
	ready() bool
}

// tryWriter is a Link that can write without blocking: not done means that
// flush must be called before the next write, with the batch kept as it is.
type tryWriter interface {
	tryWriteFrames(b *Batch) (done bool, err error)
	flush() error
}
