package supervisor

import (
	"context"
	"errors"
	"fmt"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/agentd/agentpb"
	"github.com/msb-project/msb/internal/hostdir"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// shareDirectories mounts the sandbox's directories in its guest and serves them for as long as its agent lives, which
// is longer than the sandbox's own context: a guest writes back what it holds when it stops.
func (s *supervisor) shareDirectories() error {
	for _, d := range s.plan.Directories {
		if err := s.shareDirectory(d); err != nil {
			return fmt.Errorf("%w: %s at %s: %w", state.ErrDirectory, d.Host, d.Guest, err)
		}
	}
	return nil
}

func (s *supervisor) shareDirectory(d state.Directory) error {
	server, err := hostdir.New(d.Host, hostdir.Options{Writable: d.Writable, Hide: s.plan.Hide, Share: len(s.plan.Directories), PollName: agentpb.PollName})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(s.ctx, state.BootTimeout)
	defer cancel()
	user := s.plan.DirectoryUser
	if user == "" {
		user = s.plan.Image.User
	}
	mount, err := s.agent.AttachDirectory(ctx, agentclient.DirectoryOptions{Path: d.Guest, ReadOnly: !d.Writable, User: user})
	if err != nil {
		return errors.Join(err, server.Close())
	}
	server.SetOwner(mount.UID, mount.GID)
	s.work.Go(func() {
		_ = server.Serve(context.WithoutCancel(s.ctx), mount) // it ends with the guest, or a guest that breaks the protocol loses it
		mount.Close()
		_ = server.Close() // nothing is written behind
	})
	select {
	case <-server.Polled(): // not earlier: the agent that opened a file would stand still
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: the guest did not use the directory", agentclient.ErrTimeout)
	}
}
