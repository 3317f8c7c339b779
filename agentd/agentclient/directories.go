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
	// User owns what is in it, as in ExecOptions.
	User string
}

// Directory is a directory of the host that the guest has mounted. It carries
// the guest kernel's FUSE requests to who serves it, and the replies back.
type Directory struct {
	// UID and GID are the numbers of DirectoryOptions.User in the guest.
	UID, GID uint32

	c      *Client
	ctx    context.Context // of the stream
	cancel context.CancelFunc
	stream agentpb.Directories_AttachClient
}

// AttachDirectory lets the guest mount a directory, until Close or the
// session's end. The caller has to answer what Recv returns. ctx bounds the
// mounting.
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
	if d.stream, err = d.c.dirs.Attach(d.ctx); err != nil {
		return err
	}
	start := &agentpb.AttachStart{Path: o.Path, ReadOnly: o.ReadOnly, CopyOnWrite: o.CopyOnWrite, User: o.User}
	if err := d.stream.Send(&agentpb.AttachRequest{Request: &agentpb.AttachRequest_Start{Start: start}}); err != nil {
		_, err = d.stream.Recv() // which tells why
		return err
	}
	m, err := d.stream.Recv()
	if err != nil {
		return err
	}
	if m.GetAttached() == nil {
		return fmt.Errorf("%w: a directory's first message is not that it is mounted", ErrProtocol)
	}
	d.UID, d.GID = m.GetAttached().GetUid(), m.GetAttached().GetGid()
	return nil
}

// Recv returns the next request of the guest's kernel; io.EOF once the guest has
// unmounted the directory.
func (d *Directory) Recv() ([]byte, error) {
	m, err := d.stream.Recv()
	if errors.Is(err, io.EOF) {
		return nil, io.EOF
	}
	if err != nil {
		return nil, d.c.callError(d.ctx, err)
	}
	return m.GetMessage(), nil
}

// Send sends a reply.
func (d *Directory) Send(reply []byte) error {
	return d.stream.Send(&agentpb.AttachRequest{Request: &agentpb.AttachRequest_Message{Message: reply}})
}

// Close takes the directory away from the guest.
func (d *Directory) Close() { d.cancel() }
