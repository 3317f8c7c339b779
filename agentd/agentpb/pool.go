package agentpb

import "google.golang.org/grpc/mem"

// messageOverhead is more than a message of the protocol has around its payload.
const messageOverhead = 1 << 10

// NewBufferPool makes the pool that gRPC takes the buffers of whole messages from. gRPC clears a buffer before each use,
// and its own pool has nothing between 32 KiB and 1 MiB: it would clear 1 MiB for each chunk of a stream or a file.
func NewBufferPool() mem.BufferPool {
	const frame = 16 << 10 // of HTTP/2, as gRPC sends it
	return mem.NewTieredBufferPool(256, 4<<10, frame, ChunkBytes+messageOverhead, FileChunkBytes+messageOverhead, ArchiveChunkBytes+messageOverhead, MaxMessageBytes)
}
