package capture

import (
	"errors"
	"time"
)

// LinkEthernet is LINKTYPE_ETHERNET of the registry at tcpdump.org/linktypes.html, the only link type
// that is written or read.
const LinkEthernet = 1

// Direction of a frame, from the guest's side.
type Direction uint8

// The directions. Only a foreign capture has packets of an unknown one.
const (
	FromGuest Direction = iota
	ToGuest
	UnknownDirection
)

// String returns "from guest", "to guest" or "unknown".
func (d Direction) String() string {
	switch d {
	case FromGuest:
		return "from guest"
	case ToGuest:
		return "to guest"
	case UnknownDirection:
		return "unknown"
	}
	return "invalid"
}

const (
	// DefaultMaxBytes is the size at which a file is rotated: Wireshark opens it in seconds.
	DefaultMaxBytes = 256 << 20
	// DefaultKeep is how many rotated files stay beside the current one.
	DefaultKeep = 4
	// DefaultSnapLen takes whole frames: the link's largest is 64 KiB.
	DefaultSnapLen = 256 << 10
	// DefaultQueue is how many bytes may wait for the disk. At least one batch does.
	DefaultQueue = 64 << 20

	// batchBytes is how much is gathered for one write. A thread that waits for the disk is one less for
	// packets until Go's scheduler finds out: few large writes cost less than many small ones.
	batchBytes = 2 << 20
	// batchTime is how long a batch is gathered, so that verdicts still find their packets. A crash
	// loses that much.
	batchTime = 50 * time.Millisecond
	// maxNotes bounds the comments of one batch in bytes. A guest can make a hundred requests in a packet: while
	// the disk stands still, what waits is the queue and as much again.
	maxNotes = batchBytes
	// maxSpare is how many batches of memory are kept for the next burst.
	maxSpare = 4
	// maxNames bounds the names that a rotated file repeats.
	maxNames = 4096
	// maxKeys bounds one call of TLSKeys; a line of a key log has under 200 bytes.
	maxKeys = 64 << 10
)

// ErrClosed is returned by a second Close.
var ErrClosed = errors.New("the capture is closed")

// Options change how a Writer works. Zero fields have defaults.
type Options struct {
	// MaxBytes is the size at which a file is rotated, MaxAge (0: none) the age; Keep is how many
	// rotated files stay. Only for Create.
	MaxBytes int64
	MaxAge   time.Duration
	Keep     int
	// Resume says that a capture at path is an earlier part of this recording, so that Parts lists both.
	Resume bool
	// SnapLen is how many bytes of each frame are kept.
	SnapLen int
	// Queue is how many bytes may wait for the disk; what comes on top is lost and counted.
	Queue int
	// Comment is written at the head of each file: which sandbox, which policy.
	Comment string

	// recording is in the head of each file of one recording.
	recording string
	now       func() time.Time
}

func (o Options) withDefaults() Options {
	if o.MaxBytes <= 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	if o.Keep <= 0 {
		o.Keep = DefaultKeep
	}
	if o.SnapLen <= 0 || o.SnapLen > DefaultSnapLen {
		o.SnapLen = DefaultSnapLen
	}
	if o.Queue <= 0 {
		o.Queue = DefaultQueue
	}
	if o.now == nil {
		o.now = time.Now
	}
	return o
}
