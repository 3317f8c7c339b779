package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/agentd/agentpb"
	"github.com/msb-project/msb/internal/cow"
	"github.com/msb-project/msb/internal/hostdir"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// shareDirectories mounts the sandbox's directories in its guest and serves them for as long as its agent lives, which
// is longer than the sandbox's own context: a guest writes back what it holds when it stops.
func (s *supervisor) shareDirectories() error {
	if len(s.plan.Directories) == 0 {
		return nil
	}
	port := s.shared.of(s)
	for _, d := range s.plan.Directories {
		if err := s.shareDirectory(port, d); err != nil {
			return fmt.Errorf("%w: %s at %s: %w", state.ErrDirectory, d.Host, d.Guest, err)
		}
	}
	return nil
}

// sharedPort is the port of all directories' messages. It is served from its first use on, and ends with the machine, or
// for a guest that breaks the protocol.
type sharedPort struct {
	once sync.Once
	port *hostdir.Port

	pool    *hostdir.Pool // of what containers see
	mu      sync.Mutex
	offered map[offerKey]*offered
}

func (p *sharedPort) of(s *supervisor) *hostdir.Port {
	p.once.Do(func() {
		p.port, p.pool, p.offered = hostdir.NewPort(s.machine.Directories()), hostdir.NewPool(), map[offerKey]*offered{}
		s.work.Go(func() { _ = p.port.Serve() })
	})
	return p.port
}

// offered is a directory or a file that containers see, and how many do.
type offered struct {
	number  uint32
	users   int
	release func()
}

// offerKey tells what is at a path from what was there before.
type offerKey struct {
	agentclient.HostDirectory
	device, inode uint64
}

// offerDirectory serves a directory of a container, or a file. What several containers see is served once.
func offerDirectory(s *supervisor, d agentclient.HostDirectory) (number uint32, done func(), err error) {
	var st unix.Stat_t
	if err := unix.Lstat(d.Path, &st); err != nil {
		return 0, nil, fmt.Errorf("%w: %s: %w", state.ErrDirectory, d.Path, err)
	}
	key := offerKey{d, st.Dev, st.Ino}
	port := s.shared.of(s)
	s.shared.mu.Lock()
	defer s.shared.mu.Unlock()
	o := s.shared.offered[key]
	if o == nil {
		if o, err = serveOffer(s, port, d); err != nil {
			return 0, nil, fmt.Errorf("%w: %w", state.ErrDirectory, err)
		}
		s.shared.offered[key] = o
	}
	o.users++
	return o.number, func() {
		s.shared.mu.Lock()
		defer s.shared.mu.Unlock()
		if o.users--; o.users == 0 {
			delete(s.shared.offered, key)
			o.release()
		}
	}, nil
}

func serveOffer(s *supervisor, port *hostdir.Port, d agentclient.HostDirectory) (*offered, error) {
	server, err := hostdir.New(d.Path, hostdir.Options{
		Writable: !d.ReadOnly, File: d.File, HostOwners: os.Geteuid() == 0, Pool: s.shared.pool,
	})
	if err != nil {
		return nil, err
	}
	conn := port.Open()
	served := make(chan struct{})
	s.work.Go(func() { // which ends with the machine at the latest
		defer close(served)
		_ = server.Serve(context.WithoutCancel(s.ctx), conn) // it ends with conn; a guest that breaks the protocol loses it
		conn.Close()
		_ = server.Close() // nothing is written behind
	})
	return &offered{number: conn.Number, release: func() { conn.Close(); <-served }}, nil
}

func (s *supervisor) shareDirectory(port *hostdir.Port, d state.Directory) (err error) {
	opts := hostdir.Options{Writable: d.Writable, Hide: s.plan.Hide, Share: len(s.plan.Directories), PollName: agentpb.PollName}
	done := func() {}
	opts.ByName = d.CopyOnWrite
	if d.CopyOnWrite && s.plan.Name != "" { // of others nothing is applied
		base, err := cow.OpenRecorder(state.BaseFile(s.plan.Dir, d.Guest))
		if err != nil {
			return err
		}
		done = func() { _ = base.Close() } // a record that is missing is one that was never made
		opts.Base = func(path string, f hostdir.File, opened bool) { base.Shown(path, cow.File(f), opened) }
	}
	server, err := hostdir.New(d.Host, opts)
	if err != nil {
		done()
		return err
	}
	ctx, cancel := context.WithTimeout(s.ctx, state.BootTimeout)
	defer cancel()
	user := s.plan.DirectoryUser
	if user == "" {
		user = s.plan.Image.User
	}
	conn := port.Open()
	mount, err := s.agent.AttachDirectory(ctx, agentclient.DirectoryOptions{Path: d.Guest, ReadOnly: !d.Writable, CopyOnWrite: d.CopyOnWrite, User: user, Number: conn.Number})
	if err != nil {
		conn.Close()
		done()
		return errors.Join(err, server.Close())
	}
	server.SetOwner(mount.UID, mount.GID)
	served := make(chan error, 1)
	s.work.Go(func() {
		defer conn.Close()
		_ = mount.Wait() // it ends with the guest
	})
	s.work.Go(func() {
		served <- server.Serve(context.WithoutCancel(s.ctx), conn) // a guest that breaks the protocol loses it
		mount.Close()
		_ = server.Close() // nothing is written behind
		done()
	})
	select {
	case err := <-served:
		return err
	case <-server.Polled(): // not earlier: the agent that opened a file would stand still
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: the guest did not use the directory", agentclient.ErrTimeout)
	}
}
