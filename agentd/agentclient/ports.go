package agentclient

import (
	"context"
	"errors"

	"github.com/msb-project/msb/agentd/agentpb"
)

// ErrPort is an error about a published port. The session goes on.
var ErrPort = errors.New("unusable port")

// PortServer publishes ports for clients of Serve. Ports are texts, as -p of msb run takes them; errors wrap ErrPort.
type PortServer interface {
	// AddPort returns the port with what was chosen.
	AddPort(port string) (string, error)
	// RemovePort returns those that it removed.
	RemovePort(port string) ([]string, error)
}

// AddPort publishes a port and returns it with what was chosen.
func (c *Client) AddPort(ctx context.Context, port string) (string, error) {
	r, err := c.ports.AddPort(ctx, &agentpb.PortRequest{Port: port})
	if err := c.portError(ctx, r, err); err != nil {
		return "", err
	}
	if len(r.GetPorts()) != 1 {
		return "", ErrProtocol
	}
	return r.GetPorts()[0], nil
}

// RemovePort ends published ports and their connections, and returns which.
func (c *Client) RemovePort(ctx context.Context, port string) ([]string, error) {
	r, err := c.ports.RemovePort(ctx, &agentpb.PortRequest{Port: port})
	return r.GetPorts(), c.portError(ctx, r, err)
}

func (c *Client) portError(ctx context.Context, r *agentpb.PortResponse, err error) error {
	if err != nil {
		return c.callError(ctx, err)
	}
	if r.GetError() != "" {
		return &jobText{guestText(r.GetError()), ErrPort}
	}
	return nil
}

// portsAdapter serves a PortServer.
type portsAdapter struct {
	agentpb.UnimplementedPortsServer
	ports PortServer
}

var _ agentpb.PortsServer = (*portsAdapter)(nil)

// AddPort implements agentpb.PortsServer.
func (a *portsAdapter) AddPort(_ context.Context, r *agentpb.PortRequest) (*agentpb.PortResponse, error) {
	port, err := a.ports.AddPort(r.GetPort())
	return portResponse([]string{port}, err), nil
}

// RemovePort implements agentpb.PortsServer.
func (a *portsAdapter) RemovePort(_ context.Context, r *agentpb.PortRequest) (*agentpb.PortResponse, error) {
	return portResponse(a.ports.RemovePort(r.GetPort())), nil
}

// portResponse makes an error part of the answer.
func portResponse(ports []string, err error) *agentpb.PortResponse {
	if err != nil {
		return &agentpb.PortResponse{Error: err.Error()}
	}
	return &agentpb.PortResponse{Ports: ports}
}
