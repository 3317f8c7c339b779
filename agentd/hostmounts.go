//go:build linux

package agentd

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/agentd/agentpb"
	"github.com/msb-project/msb/agentd/internal/system"
)

// hostMounts are what containers see of the host. What two of them see is one file system, so that they see each other's
// changes at once, and sockets of programs in it connect them.
type hostMounts struct {
	carrier *carrier
	carries *atomic.Bool
	log     *slog.Logger

	mu  sync.Mutex
	all map[uint32]*hostMount
}

// hostMount is a file system of one directory or file, which the agent has mounted for itself.
type hostMount struct {
	file   bool
	users  int
	device *rawFile
	done   chan struct{} // closed when its messages are not carried any more
}

// take makes a mount of what has that number, attached nowhere. Each is given back by release.
func (m *hostMounts) take(d *agentpb.HostDirectory, attributes int) (*os.File, error) {
	number := d.GetNumber()
	if number == 0 {
		return nil, errors.New("nobody serves it")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	h := m.all[number]
	if h == nil {
		if len(m.all) >= agentpb.MaxDirectories {
			return nil, fmt.Errorf("%d directories of the host are mounted already", len(m.all))
		}
		var err error
		if h, err = m.mount(d); err != nil {
			return nil, err
		}
		m.all[number] = h
	}
	if h.file != d.GetFile() {
		return nil, errors.New("it is a file once and a directory once")
	}
	f, err := system.CloneMount(system.HostPlace(number), attributes)
	if err != nil && h.users == 0 {
		m.end(number, h)
	}
	if err == nil {
		h.users++
	}
	return f, err
}

func (m *hostMounts) mount(d *agentpb.HostDirectory) (*hostMount, error) {
	fd, err := unix.Open(fuseDevice, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", fuseDevice, err)
	}
	device, err := newRawFile(fd)
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	if err := system.MountHost(fd, d.GetNumber(), d.GetFile()); err != nil {
		return nil, errors.Join(err, device.Close())
	}
	m.carries.Store(true)
	h := &hostMount{file: d.GetFile(), device: device, done: make(chan struct{})}
	go func() {
		defer close(h.done)
		if err := m.carrier.carry(d.GetNumber(), device); err != nil {
			m.log.Warn("containers lost a directory of the host", "err", err)
		}
	}()
	return h, nil
}

// release gives a mount back that nobody uses any more.
func (m *hostMounts) release(number uint32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := m.all[number]
	if h.users--; h.users == 0 {
		m.end(number, h)
	}
}

func (m *hostMounts) end(number uint32, h *hostMount) {
	delete(m.all, number)
	if err := system.UnmountHost(number); err != nil {
		m.log.Warn("a directory of the host stays mounted", "err", err)
	}
	h.device.stop()
	<-h.done
	_ = h.device.Close() // ends the mount, if there is one still
}
