package netstack

import (
	"sync"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

const (
	// txFrames and txBytes bound what waits for a guest that does not read.
	// Above them frames are dropped, which TCP takes as loss and answers with
	// timeouts that double: transfers then stall for half a minute. So they
	// hold what dozens of connections may have in flight (maxSend each); the
	// bytes are those of the connections' send queues, not copies.
	txFrames = 1 << 15
	txBytes  = 32 << 20
	// inlineRounds is how often a sender writes what others queued meanwhile
	// before it leaves the rest to the queue's goroutine.
	inlineRounds = 2
)

var _ stack.QueueingDiscipline = (*txQueue)(nil)

// txQueue is the way to the guest. While the link takes frames at once the
// sender writes them itself, which saves a change of goroutine for each; as soon
// as the link would block, a goroutine goes on and the sender never waits: a
// guest, or a VMM that writes before it reads, holds up nobody.
type txQueue struct {
	ep *endpoint

	mu     sync.Mutex
	queue  []*stack.PacketBuffer
	bytes  int
	busy   bool // someone holds the right to write
	closed bool

	batch []*stack.PacketBuffer // of who holds the right
	wake  chan struct{}         // hands the right to the goroutine
	stop  chan struct{}
	ended chan struct{}
}

func newTxQueue(ep *endpoint) *txQueue {
	q := &txQueue{ep: ep, wake: make(chan struct{}, 1), stop: make(chan struct{}), ended: make(chan struct{})}
	go q.run()
	return q
}

// WritePacket implements stack.QueueingDiscipline.
func (q *txQueue) WritePacket(pkt *stack.PacketBuffer) tcpip.Error {
	size := pkt.Size()
	q.mu.Lock()
	switch {
	case q.closed:
		q.mu.Unlock()
		return &tcpip.ErrClosedForSend{}
	case len(q.queue) >= txFrames || q.bytes+size > txBytes:
		q.mu.Unlock()
		q.ep.cnt.unsent.Add(1)
		return &tcpip.ErrNoBufferSpace{}
	}
	q.queue = append(q.queue, pkt.IncRef())
	q.bytes += size
	mine := !q.busy
	q.busy = true
	q.mu.Unlock()
	if mine {
		q.drain()
	}
	return nil
}

// drain writes as the sender.
func (q *txQueue) drain() {
	for range inlineRounds {
		if !q.take() {
			return
		}
		if !q.ep.tryWrite(q.batch) {
			break // the batch stays until the goroutine has flushed it
		}
		q.release()
	}
	q.wake <- struct{}{} // never blocks: only who holds the right sends
}

// run writes what senders could not.
func (q *txQueue) run() {
	defer close(q.ended)
	for {
		select {
		case <-q.stop:
			return
		case <-q.wake:
		}
		q.ep.flush()
		q.release()
		for q.take() {
			if !q.ep.tryWrite(q.batch) {
				q.ep.flush()
			}
			q.release()
		}
	}
}

// take moves the queue into the batch, or gives the right back if it is empty.
func (q *txQueue) take() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.queue) == 0 {
		q.busy = false
		return false
	}
	q.batch, q.queue = q.queue, q.batch[:0]
	q.bytes = 0
	return true
}

func (q *txQueue) release() {
	for i, pkt := range q.batch {
		pkt.DecRef()
		q.batch[i] = nil
	}
	q.batch = q.batch[:0]
}

// Close implements stack.QueueingDiscipline. The link is closed before it, so
// that no write blocks.
func (q *txQueue) Close() {
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return
	}
	q.closed = true
	q.mu.Unlock()
	close(q.stop)
	<-q.ended
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, pkt := range q.queue {
		pkt.DecRef()
	}
	q.queue = nil
}
