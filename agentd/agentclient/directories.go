package agentclient

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/msb-project/msb/agentd/agentpb"
)

// DirectoryOptions say where the guest mounts a directory of the host.
type DirectoryOptions struct {
	// Path is absolute; what is missing of it is made.
	Path     string
	ReadOnly bool
	// CopyOnWrite keeps what the guest writes in a layer of its own, which Changes
	// lists. It comes with ReadOnly.
	CopyOnWrite bool
	// Number is what is before its messages on the machine's port for them.
	Number uint32
	// User owns what is in it, as in ExecOptions.
	User string
}

// Directory is a directory of the host that the guest has mounted.
type Directory struct {
	// UID and GID are the numbers of DirectoryOptions.User in the guest.
	UID, GID uint32

	c      *Client
	ctx    context.Context // of the stream
	cancel context.CancelFunc
	stream agentpb.Directories_AttachClient
}

// AttachDirectory makes the guest mount a directory, until Close or the session's end. The
// caller answers the guest kernel's requests, which come over the machine's port for
// directories. ctx bounds the mounting.
func (c *Client) AttachDirectory(ctx context.Context, o DirectoryOptions) (*Directory, error) {
	d := &Directory{c: c}
	d.ctx, d.cancel = context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, d.cancel)
	err := d.attach(o)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		d.cancel()
		return nil, c.callError(ctx, err)
	}
	return d, nil
}

func (d *Directory) attach(o DirectoryOptions) (err error) {
	d.stream, err = d.c.dirs.Attach(d.ctx, &agentpb.AttachRequest{
		Path: o.Path, ReadOnly: o.ReadOnly, CopyOnWrite: o.CopyOnWrite, User: o.User, Number: o.Number,
	})
	if err != nil {
		return err
	}
	m, err := d.stream.Recv()
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: a directory that was never mounted", ErrProtocol)
	}
	if err != nil {
		return err
	}
	d.UID, d.GID = m.GetUid(), m.GetGid()
	return nil
}

// Wait waits until the guest has unmounted the directory, or lost it.
func (d *Directory) Wait() error {
	_, err := d.stream.Recv()
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil {
		return d.c.callError(d.ctx, err)
	}
	return d.c.fail(fmt.Errorf("%w: a directory was mounted twice", ErrProtocol))
}

// Close takes the directory away from the guest.
func (d *Directory) Close() { d.cancel() }
