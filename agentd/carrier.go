//go:build linux

package agentd

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/agentd/agentpb"
)

// carrier carries messages between the kernel's ends of mounts and the host, over
// one port: before each is the number of its directory.
type carrier struct {
	port  io.ReadWriter
	start sync.Once
	send  sync.Mutex

	mu      sync.Mutex
	devices map[uint32]*rawFile
	err     error // of the port
}

const (
	// carryPs leaves the other goroutines Ps while messages are carried in both
	// directions of two directories; see rawFile.
	carryPs = 3

	numberBytes = 4
	// lengthBytes is how far into a message the kernel's own length of it goes.
	lengthBytes = 4
)

func newCarrier(port io.ReadWriter) *carrier {
	return &carrier{port: port, devices: map[uint32]*rawFile{}}
}

// carry carries the kernel's requests to the host until the directory is
// unmounted, and the replies back.
func (c *carrier) carry(number uint32, device *rawFile) error {
	c.start.Do(func() {
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + carryPs)
		go c.replies()
	})
	c.mu.Lock()
	err := c.err
	if err == nil && c.devices[number] != nil {
		err = unix.EEXIST
	}
	if err == nil {
		c.devices[number] = device
	}
	c.mu.Unlock()
	if err != nil {
		return err
	}
	defer func() {
		c.mu.Lock()
		delete(c.devices, number)
		c.mu.Unlock()
	}()
	buf := make([]byte, numberBytes+agentpb.MaxDirectoryMessage)
	binary.LittleEndian.PutUint32(buf, number)
	for {
		n, err := device.Read(buf[numberBytes:])
		switch {
		case errors.Is(err, unix.ENOENT):
			continue // a request that was given up
		case errors.Is(err, unix.ENODEV), errors.Is(err, os.ErrClosed):
			return nil
		case err != nil:
			return err
		}
		c.send.Lock()
		_, err = c.port.Write(buf[:numberBytes+n])
		c.send.Unlock()
		if err != nil {
			return err
		}
	}
}

// replies carries the host's messages to the kernel until the port ends, and all
// mounts with it.
func (c *carrier) replies() {
	err := c.deliver()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
	for _, device := range c.devices {
		device.stop() // which ends the mount
	}
}

func (c *carrier) deliver() error {
	in := bufio.NewReaderSize(c.port, numberBytes+agentpb.MaxDirectoryMessage)
	for {
		head, err := in.Peek(numberBytes + lengthBytes)
		if err != nil {
			return err
		}
		number, length := binary.LittleEndian.Uint32(head), binary.LittleEndian.Uint32(head[numberBytes:])
		if length < lengthBytes || length > agentpb.MaxDirectoryMessage {
			return errProtocol
		}
		message, err := in.Peek(numberBytes + int(length))
		if err != nil {
			return err
		}
		c.mu.Lock()                                     // so that the descriptor stays the device's
		if device := c.devices[number]; device != nil { // else it was unmounted meanwhile
			// One that the kernel doesn't wait for any more is refused, which is of no
			// interest; that it has gone is for carry to find.
			_, _ = device.Write(message[numberBytes:])
		}
		c.mu.Unlock()
		_, _ = in.Discard(len(message)) // it is in the buffer
	}
}
