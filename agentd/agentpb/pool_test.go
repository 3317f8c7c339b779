package agentpb

import "testing"

// TestBuffersFitTheirMessages: gRPC clears the whole of a buffer before each use, also of one that is far too large.
func TestBuffersFitTheirMessages(t *testing.T) {
	t.Parallel()
	pool := NewBufferPool()
	for _, payload := range []int{ChunkBytes, FileChunkBytes} {
		const around = 100 // more than protobuf and gRPC put around a payload
		b := pool.Get(payload + around)
		if len(*b) != payload+around || cap(*b) > payload+payload/16 {
			t.Errorf("a message of %d bytes got a buffer of %d, %d of them usable", payload+around, cap(*b), len(*b))
		}
		pool.Put(b)
	}
	if b := pool.Get(MaxMessageBytes); len(*b) != MaxMessageBytes {
		t.Errorf("the largest message got a buffer of %d bytes", len(*b))
	}
}
