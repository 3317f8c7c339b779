package agentpb

import "time"

// The protocol versions that this build speaks, both included.
const (
	MinVersion uint32 = 1
	MaxVersion uint32 = 1
)

// ResumeKeyBytes is the length of a handshake's resume_key.
const ResumeKeyBytes = 32

// PortName is the name of the virtio-console port that carries the protocol;
// the guest finds it under /sys/class/virtio-ports.
const PortName = "msb.agent"

// DirectoryPortName is the name of the port that carries messages of directories.
const DirectoryPortName = "msb.directories"

// DirectoryReadAhead is how much of a file a guest's kernel reads at once, in bytes: what one message carries.
const DirectoryReadAhead = 256 << 10

// MaxDirectoryMessage bounds such a message on both ends: above the largest
// request of the kernel, which refuses to hand one out into less than it may need
// (FUSE_MIN_READ_BUFFER, and the largest write that the host's INIT allows).
const MaxDirectoryMessage = 264 << 10

// SFTPServer is argv[0] of the agent's own SFTP server.
const SFTPServer = "msb-sftp-server"

const (
	// MaxMessageBytes bounds one received message on both ends. The largest
	// honest one is a handshake with a bundle of certificates.
	MaxMessageBytes = 1 << 20

	// MaxHeaderBytes bounds the header list of one call. gRPC's default lets
	// the peer make us hold 16 MiB for each.
	MaxHeaderBytes = 16 << 10

	// ChunkBytes is the most payload that one stdin, stdout or stderr message
	// carries: half a pipe buffer, so that a chunk never waits for another.
	ChunkBytes = 32 << 10

	// FileChunkBytes is the most payload that one message of a file's content or
	// of an archive carries: a quarter of StreamWindowBytes, so that the next
	// ones are on the way while one is stored.
	FileChunkBytes = 64 << 10

	// ArchiveChunkBytes is the same of an archive between a supervisor and its
	// clients, where a message costs more than its bytes.
	ArchiveChunkBytes = 256 << 10

	// ClientWindowBytes is the flow control window of a client's call of its
	// supervisor.
	ClientWindowBytes = 4 * ArchiveChunkBytes

	// StreamWindowBytes is HTTP/2's flow control window of one call: what a
	// reader that stopped reading makes its own side hold.
	StreamWindowBytes = 256 << 10

	// ConnWindowBytes is HTTP/2's flow control window of the whole stream.
	ConnWindowBytes = 1 << 20

	// StdinWindowBytes is what one exec holds of stdin that its process has
	// not read. It is below StreamWindowBytes, so that a signal sent after it
	// still gets through to a process that does not read.
	StdinWindowBytes = 128 << 10
)

// HandshakeTimeout is how long a host waits for the answer to Handshake unless
// it says otherwise: emulated machines with cold disks included.
const HandshakeTimeout = 30 * time.Second

// PollName is a file at the top of each directory of the host that the agent
// polls once, before anybody uses the directory.
const PollName = ".msb-poll"

// Bounds of containers, which both ends hold to.
const (
	MaxContainers      = 64  // that are not deleted
	MaxContainerMounts = 64  // of one
	MaxContainerExecs  = 64  // of one, at once
	MaxContainerPaths  = 256 // masked ones of one, and likewise read-only ones, sysctls and files of control groups
	MaxContainerTmpfs  = 64  // of the guest, that containers share
	MaxSockets         = 1024
	// MaxDirectories bounds what is mounted of the host at once.
	MaxDirectories = 256
)

// Bounds of Search.Find: how many texts, and the bytes of one. A text that is shorter is in too many files.
const (
	MaxFindTexts = 64
	MinFindBytes = 8
	MaxFindBytes = 4 << 10
)
