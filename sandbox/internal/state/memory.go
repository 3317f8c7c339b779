package state

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/internal/lazyregexp"
	"github.com/msb-project/msb/internal/vm"
)

// MaxHold bounds how long a guest stands still while its memory is saved.
const MaxHold = time.Minute

// MemoryHead begins the file of a guest's memory. The state follows, as the backend wrote it, and then the digest of both.
// The file has no value of a secret in it: the guest has none.
type MemoryHead struct {
	Version int `json:"version"`
	// Created is the sandbox's: the memory is no other's.
	Created time.Time `json:"created"`
	Saved   vm.Saved  `json:"saved"`
	// Needs are what the guest was set up with, and has to find again.
	Needs []vm.Need `json:"needs"`
	// MAC is the address of its network card.
	MAC net.HardwareAddr `json:"mac,omitempty"`
	// Key begins the next session with its agent (agentclient.Rejoin).
	Key []byte `json:"key"`
}

const (
	memoryVersion = 1
	// maxMemoryHead bounds the line of the head.
	maxMemoryHead = 64 << 10
	// roomEvery is after how many bytes it is looked whether room is left.
	roomEvery = 16 << 20
)

// ErrMemoryDamaged means that a file is not what a MemoryWriter wrote.
var ErrMemoryDamaged = errors.New("the saved memory is damaged")

// MemoryWriter writes the file of a guest's memory, and leaves room for the sandboxes that run.
type MemoryWriter struct {
	f     *os.File
	sum   hash.Hash
	most  int64 // that may come
	since int64 // the last look at the room
}

// NewMemoryWriter begins the file with its head. A state of more than most bytes is refused.
func NewMemoryWriter(f *os.File, head *MemoryHead, most int64) (*MemoryWriter, error) {
	head.Version = memoryVersion
	line, err := json.Marshal(head)
	if err != nil {
		return nil, err
	}
	w := &MemoryWriter{f: f, sum: sha256.New(), most: most + int64(len(line)) + 1}
	_, err = w.Write(append(line, '\n'))
	return w, err
}

// Write implements io.Writer.
func (w *MemoryWriter) Write(b []byte) (int, error) {
	if w.most -= int64(len(b)); w.most < 0 {
		return 0, errors.New("the machine's state is larger than its memory")
	}
	if w.since += int64(len(b)); w.since >= roomEvery {
		w.since = 0
		if free, err := Free(filepath.Dir(w.f.Name())); err == nil && free < MinFree {
			return 0, fmt.Errorf("%s: a guest's memory leaves %d MiB free for the sandboxes that run: %w", w.f.Name(), MinFree>>20, syscall.ENOSPC)
		}
	}
	w.sum.Write(b) // it never fails
	return w.f.Write(b)
}

// Finish writes the digest.
func (w *MemoryWriter) Finish() error {
	_, err := w.f.Write(w.sum.Sum(nil))
	return err
}

// SavedMemory is a guest's memory that is read.
type SavedMemory struct {
	MemoryHead
	path string
	f    *os.File
	in   *bufio.Reader
	sum  hash.Hash
	left int64 // of the state
}

// OpenMemory reads the head of the file.
func OpenMemory(path string) (*SavedMemory, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	m := &SavedMemory{path: path, f: f, in: bufio.NewReaderSize(f, maxMemoryHead), sum: sha256.New()}
	if err := m.readHead(); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %s: %w", ErrMemoryDamaged, path, err), f.Close())
	}
	return m, nil
}

func (m *SavedMemory) readHead() error {
	info, err := m.f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return errors.New("it is no file")
	}
	line, err := m.in.ReadSlice('\n')
	if err != nil {
		return fmt.Errorf("its head: %w", err)
	}
	m.sum.Write(line)
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&m.MemoryHead); err != nil {
		return fmt.Errorf("its head: %w", err)
	}
	if m.Version != memoryVersion {
		return fmt.Errorf("it is of version %d, want %d", m.Version, memoryVersion)
	}
	m.left = info.Size() - int64(len(line)) - sha256.Size
	if m.left <= 0 {
		return io.ErrUnexpectedEOF
	}
	return nil
}

// Read reads the state. It gives the last bytes only if the digest is right: a machine that is given all but those never
// runs.
func (m *SavedMemory) Read(b []byte) (int, error) {
	if m.left == 0 {
		return 0, io.EOF
	}
	n, err := m.in.Read(b[:min(int64(len(b)), m.left)])
	m.sum.Write(b[:n])
	m.left -= int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	if m.left > 0 {
		if err != nil {
			return 0, fmt.Errorf("%w: %s: it was cut", ErrMemoryDamaged, m.path)
		}
		return n, nil
	}
	want := make([]byte, sha256.Size)
	if _, err := io.ReadFull(m.in, want); err != nil || !bytes.Equal(want, m.sum.Sum(nil)) {
		m.left = 1 // nothing more comes
		return 0, fmt.Errorf("%w: %s: it has another digest", ErrMemoryDamaged, m.path)
	}
	return n, nil
}

// Close closes the file, which stays.
func (m *SavedMemory) Close() error { return m.f.Close() }

// Take removes the file, and returns once that outlives the host's loss of power: what the guest writes to its disk from
// then on would not fit it.
func (m *SavedMemory) Take() error {
	if err := os.Remove(m.path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(m.path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// The memory beside a disk has that disk's time in its name. Whatever writes to the disk gives it another, so that no
// memory is ever taken for that of a disk of another instant: whatever is killed, and in whatever order files come and go.
const memoryPrefix = "memory-"

var memoryName = lazyregexp.New(`^memory-[0-9a-f]{16}$`)

// PairWithMemory gives a disk that nobody has opened a time that no other has, and returns the name of the file that is its
// memory if it is beside the disk.
func PairWithMemory(disk string) (name string, err error) {
	const second, span = 1e9, 20 * 365 * 24 * 3600
	n, err := rand.Int(rand.Reader, big.NewInt(span*second))
	if err != nil {
		return "", err
	}
	past := time.Unix(span, n.Int64()) // from 1990 to 2010: no write gives it such a time
	if err := os.Chtimes(disk, past, past); err != nil {
		return "", err
	}
	return memoryOf(disk)
}

// memoryOf is the name of a disk's memory.
func memoryOf(disk string) (string, error) {
	info, err := os.Lstat(disk)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s%016x", memoryPrefix, uint64(info.ModTime().UnixNano())), nil
}

// FindMemory is the path of the memory of a sandbox's disk; "" if there is none.
func FindMemory(dir string) (string, error) {
	name, err := memoryOf(filepath.Join(dir, UpperDisk))
	if err != nil {
		return "", UnlessGone(err)
	}
	path := filepath.Join(dir, name)
	if _, err := os.Lstat(path); err != nil {
		return "", UnlessGone(err)
	}
	return path, nil
}

// RemoveMemories removes the memories beside a disk, but not that of the name kept.
func RemoveMemories(dir, kept string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if name := e.Name(); name != kept && strings.HasPrefix(name, memoryPrefix) && memoryName.MatchString(name) {
			err = errors.Join(err, UnlessGone(os.Remove(filepath.Join(dir, name))))
		}
	}
	return err
}
