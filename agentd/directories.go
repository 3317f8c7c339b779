//go:build linux

package agentd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msb-project/msb/agentd/agentpb"
	"github.com/msb-project/msb/agentd/internal/files"
	"github.com/msb-project/msb/agentd/internal/machine"
	"github.com/msb-project/msb/agentd/internal/workload"
)

// fuseDevice is the kernel's end of a mount, in the agent's own /dev.
const fuseDevice = "/dev/fuse"

// maxFuseMessage is above the largest request of the kernel: it refuses to hand
// one out into less than it may need (FUSE_MIN_READ_BUFFER, and the largest
// write that the host's INIT allows).
const maxFuseMessage = 256 << 10

// directoryServer mounts directories of the host and carries the messages
// between the kernel and the host.
type directoryServer struct {
	agentpb.UnimplementedDirectoriesServer
	root     *workload.Root
	carries  *atomic.Bool // set before the first message is carried
	shutdown <-chan struct{}
	busy     func() bool // processes of the host's run
}

var _ agentpb.DirectoriesServer = (*directoryServer)(nil)

type attachStream = grpc.BidiStreamingServer[agentpb.AttachRequest, agentpb.AttachResponse]

// Attach implements agentpb.DirectoriesServer.
func (s *directoryServer) Attach(stream attachStream) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	start := first.GetStart()
	if start == nil || !path.IsAbs(start.GetPath()) {
		return status.Error(codes.InvalidArgument, "the first message of a directory must be start, with an absolute path")
	}
	s.carries.Store(true)
	device, attached, err := s.mount(start)
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	err = stream.Send(&agentpb.AttachResponse{Response: &agentpb.AttachResponse_Attached{Attached: attached}})
	if err != nil {
		return errors.Join(err, device.Close())
	}
	ended := make(chan error, 3)
	var reader sync.WaitGroup
	reader.Go(func() { ended <- requests(device, stream) })
	go func() { ended <- replies(device, stream) }() // which the end of the call ends
	go func() {
		if err := s.show(start); err != nil {
			ended <- status.Error(codes.InvalidArgument, err.Error())
		}
	}()
	select {
	case err = <-ended:
	case <-s.shutdown:
		s.settle(start.GetPath())
	}
	_ = device.Close() // ends the mount: what is used of it fails from now on
	reader.Wait()
	return err
}

// mount makes the mount point and mounts the directory there, as the workload
// sees it.
func (s *directoryServer) mount(start *agentpb.AttachStart) (device *os.File, attached *agentpb.Attached, err error) {
	fd, err := unix.Open(fuseDevice, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("open %s: %w", fuseDevice, err)
	}
	attached = &agentpb.Attached{}
	err = s.root.Run(func() error {
		if attached.Uid, attached.Gid, err = workload.LookupUser(start.GetUser()); err != nil || start.GetCopyOnWrite() {
			return err
		}
		return mountFuse(fd, start.GetPath(), start.GetReadOnly())
	})
	if err == nil && start.GetCopyOnWrite() { // where the workload has no path to it
		err = mountFuse(fd, machine.LayerOf(start.GetPath()).Lower(), true)
	}
	if err != nil {
		_ = unix.Close(fd) // nothing was mounted
		return nil, nil, err
	}
	// Not earlier: a device without a mount never wakes who waits for it.
	return os.NewFile(uintptr(fd), fuseDevice), attached, nil
}

// mountFuse mounts the device's file system, as the calling thread sees paths.
func mountFuse(fd int, at string, readOnly bool) error {
	if err := os.MkdirAll(at, 0o755); err != nil { //nolint:gosec // as other tools make mount points
		return fmt.Errorf("make the mount point: %w", err)
	}
	flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV)
	if readOnly {
		flags |= unix.MS_RDONLY
	}
	// What is allowed goes by the modes that the host's files have.
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions", fd)
	if err := unix.Mount("host", at, "fuse", flags, options); err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	return nil
}

// show polls, which tells the host that the directory can be used. The overlay
// of one that is copied on write is made before: the kernel asks for what is
// below it, so that messages have to be carried by then.
func (s *directoryServer) show(start *agentpb.AttachStart) error {
	if !start.GetCopyOnWrite() {
		return s.root.Run(func() error { return poll(start.GetPath()) })
	}
	layer := machine.LayerOf(start.GetPath())
	overlay, err := layer.Overlay()
	if err != nil {
		return err
	}
	if err := s.root.Run(func() error { return machine.Attach(overlay, start.GetPath()) }); err != nil {
		return err
	}
	return poll(layer.Lower())
}

// poll lets the kernel learn that files of the host can't be polled. Without
// it each would be asked for as Go opens it, in a call that holds up the very
// messages by which it is answered.
func poll(dir string) error {
	fd, err := unix.Open(path.Join(dir, agentpb.PollName), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	_, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
	return errors.Join(err, unix.Close(fd))
}

// requests carries the kernel's messages to the host until the directory is
// unmounted.
func requests(device *os.File, stream attachStream) error {
	buf := make([]byte, maxFuseMessage)
	for {
		n, err := device.Read(buf)
		switch {
		case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EINTR):
			continue // a request that was given up
		case errors.Is(err, unix.ENODEV), errors.Is(err, os.ErrClosed):
			return nil
		case err != nil:
			return status.Error(codes.Aborted, err.Error())
		}
		if err := stream.Send(&agentpb.AttachResponse{Response: &agentpb.AttachResponse_Message{Message: buf[:n]}}); err != nil {
			return err
		}
	}
}

// replies carries the host's messages to the kernel.
func replies(device *os.File, stream attachStream) error {
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		// One that the kernel doesn't wait for any more is refused, which is of no
		// interest.
		_, err = device.Write(m.GetMessage())
		if errors.Is(err, unix.ENODEV) || errors.Is(err, os.ErrClosed) {
			return nil
		}
	}
}

// Changes implements agentpb.DirectoriesServer.
func (s *directoryServer) Changes(req *agentpb.ChangesRequest, stream grpc.ServerStreamingServer[agentpb.ChangesResponse]) error {
	omitted, err := files.Layer(stream.Context(), machine.LayerOf(req.GetPath()).Data(), func(entries []*agentpb.LayerEntry) error {
		return stream.Send(&agentpb.ChangesResponse{Entries: entries})
	})
	if err != nil {
		return fileStatus(err)
	}
	return stream.Send(&agentpb.ChangesResponse{Omitted: omitted})
}

// ReadChanged implements agentpb.DirectoriesServer.
func (s *directoryServer) ReadChanged(req *agentpb.ReadChangedRequest, stream grpc.ServerStreamingServer[agentpb.ReadChangedResponse]) error {
	return fileStatus(files.ReadLayer(machine.LayerOf(req.GetPath()).Data(), string(req.GetName()), func(b []byte) error {
		return stream.Send(&agentpb.ReadChangedResponse{Data: b})
	}))
}

// settle lets processes end that were asked to, and writes back what the kernel
// still holds of files that they had mapped.
func (s *directoryServer) settle(dir string) {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownGrace/2)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for s.busy() && ctx.Err() == nil {
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	written := make(chan struct{})
	go func() {
		defer close(written)
		_ = s.root.Run(func() error { // there is nobody left to tell
			f, err := os.Open(dir)
			if err != nil {
				return err
			}
			defer func() { _ = f.Close() }()
			return unix.Syncfs(int(f.Fd()))
		})
	}()
	select {
	case <-written:
	case <-ctx.Done():
	}
}
