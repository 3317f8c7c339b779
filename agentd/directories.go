//go:build linux

package agentd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msb-project/msb/agentd/agentpb"
	"github.com/msb-project/msb/agentd/internal/fileops"
	"github.com/msb-project/msb/agentd/internal/system"
	"github.com/msb-project/msb/agentd/internal/workload"
)

// fuseDevice is the kernel's end of a mount, in the agent's own /dev.
const fuseDevice = "/dev/fuse"

// directoryServer mounts directories of the host.
type directoryServer struct {
	agentpb.UnimplementedDirectoriesServer
	root     *workload.Root
	carrier  *carrier
	carries  *atomic.Bool // set before the first message is carried
	shutdown <-chan struct{}
	busy     func() bool // processes of the host's run
}

var _ agentpb.DirectoriesServer = (*directoryServer)(nil)

// Attach implements agentpb.DirectoriesServer.
func (s *directoryServer) Attach(start *agentpb.AttachRequest, stream grpc.ServerStreamingServer[agentpb.AttachResponse]) error {
	if !path.IsAbs(start.GetPath()) || s.carrier == nil {
		return status.Error(codes.InvalidArgument, "a directory needs an absolute path, and the port of its messages")
	}
	s.carries.Store(true)
	device, attached, err := s.mount(start)
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	ended := make(chan error, 3)
	var requests sync.WaitGroup
	requests.Go(func() { ended <- s.carrier.carry(start.GetNumber(), device) })
	if err := stream.Send(attached); err != nil {
		ended <- err
	}
	go func() {
		if err := s.show(start); err != nil {
			ended <- status.Error(codes.InvalidArgument, err.Error())
		}
	}()
	select {
	case err = <-ended:
	case <-stream.Context().Done():
		err = stream.Context().Err()
	case <-s.shutdown:
		s.settle(start.GetPath())
	}
	device.stop()
	requests.Wait()
	_ = device.Close() // ends the mount: what is used of it fails from now on
	return err
}

// mount makes the mount point and mounts the directory there, as the workload
// sees it.
func (s *directoryServer) mount(start *agentpb.AttachRequest) (device *rawFile, attached *agentpb.AttachResponse, err error) {
	fd, err := unix.Open(fuseDevice, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("open %s: %w", fuseDevice, err)
	}
	attached = &agentpb.AttachResponse{}
	err = s.root.Run(func() error {
		if attached.Uid, attached.Gid, err = workload.LookupUser(start.GetUser()); err != nil || start.GetCopyOnWrite() {
			return err
		}
		return mountFuse(fd, start.GetPath(), start.GetReadOnly())
	})
	if err == nil && start.GetCopyOnWrite() { // where the workload has no path to it
		err = mountFuse(fd, system.LayerOf(start.GetPath()).Lower(), true)
	}
	if err != nil {
		_ = unix.Close(fd) // nothing was mounted
		return nil, nil, err
	}
	if device, err = newRawFile(fd); err != nil {
		_ = unix.Close(fd) // ends the mount
		return nil, nil, err
	}
	return device, attached, nil
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
func (s *directoryServer) show(start *agentpb.AttachRequest) error {
	if !start.GetCopyOnWrite() {
		return s.root.Run(func() error { return errors.Join(poll(start.GetPath()), readAhead(start.GetPath())) })
	}
	layer := system.LayerOf(start.GetPath())
	overlay, err := layer.Overlay()
	if err != nil {
		return err
	}
	if err := s.root.Run(func() error { return system.Attach(overlay, start.GetPath()) }); err != nil {
		return err
	}
	return errors.Join(poll(layer.Lower()), readAhead(layer.Lower()))
}

// readAhead lets the kernel read more at once than it starts with, which the
// host's INIT can only lower.
func readAhead(dir string) error {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return err
	}
	name := fmt.Sprintf("/sys/class/bdi/%d:%d/read_ahead_kb", unix.Major(st.Dev), unix.Minor(st.Dev))
	return os.WriteFile(name, []byte(strconv.Itoa(agentpb.DirectoryReadAhead>>10)), 0)
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

// Changes implements agentpb.DirectoriesServer.
func (s *directoryServer) Changes(req *agentpb.ChangesRequest, stream grpc.ServerStreamingServer[agentpb.ChangesResponse]) error {
	omitted, err := fileops.Layer(stream.Context(), system.LayerOf(req.GetPath()).Data(), func(entries []*agentpb.LayerEntry) error {
		return stream.Send(&agentpb.ChangesResponse{Entries: entries})
	})
	if err != nil {
		return fileStatus(err)
	}
	return stream.Send(&agentpb.ChangesResponse{Omitted: omitted})
}

// ReadChanged implements agentpb.DirectoriesServer.
func (s *directoryServer) ReadChanged(req *agentpb.ReadChangedRequest, stream grpc.ServerStreamingServer[agentpb.ReadChangedResponse]) error {
	return fileStatus(fileops.ReadLayer(system.LayerOf(req.GetPath()).Data(), string(req.GetName()), func(b []byte) error {
		return stream.Send(&agentpb.ReadChangedResponse{Data: b})
	}))
}

// settle waits for processes that were asked to end, and writes back the pages of files that
// they had mapped.
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
