package agentclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msb-project/msb/agentd/agentpb"
)

// maxUsage bounds a supervisor's figures, in bytes: their number is fixed, except for some dozens of reasons and bounds.
const maxUsage = 64 << 10

// SupervisorServer answers the calls of clients of Serve that the supervisor handles itself.
type SupervisorServer interface {
	// Usage is encoded as JSON.
	Usage(ctx context.Context) any
	// Update is given JSON.
	Update(changes []byte) error
}

// Usage asks the supervisor for its figures and decodes them into what v points to.
func (c *Client) Usage(ctx context.Context, v any) error {
	r, err := c.supervisor.Usage(ctx, &agentpb.UsageRequest{})
	if status.Code(err) == codes.Unimplemented {
		return errOldSupervisor
	}
	if err != nil {
		return c.callError(ctx, err)
	}
	if len(r.GetUsage()) > maxUsage {
		return fmt.Errorf("%w: %d bytes of figures", ErrProtocol, len(r.GetUsage()))
	}
	if err := json.Unmarshal(r.GetUsage(), v); err != nil {
		return fmt.Errorf("%w: its figures: %w", ErrProtocol, err)
	}
	return nil
}

// errOldSupervisor is of a sandbox that was started by an msb of before.
var errOldSupervisor = fmt.Errorf("%w: the sandbox was started by an older msb; stop and start it", ErrRefused)

// Update has the supervisor make changes, which are JSON.
func (c *Client) Update(ctx context.Context, changes []byte) error {
	r, err := c.supervisor.Update(ctx, &agentpb.UpdateRequest{Changes: changes})
	if status.Code(err) == codes.Unimplemented {
		return errOldSupervisor
	}
	if err != nil {
		return c.callError(ctx, err)
	}
	if r.GetError() != "" {
		return fmt.Errorf("%w: %s", errUpdate, guestText(r.GetError()))
	}
	return nil
}

// errUpdate means that the supervisor could not make or store a change. The session continues.
var errUpdate = errors.New("the change could not be made")

// supervisorAdapter serves a SupervisorServer.
type supervisorAdapter struct {
	agentpb.UnimplementedSupervisorServer
	server SupervisorServer
	ssh    func(conn io.ReadWriteCloser, notice func(string)) error
	save   SaveMemory
}

var _ agentpb.SupervisorServer = (*supervisorAdapter)(nil)

// Usage implements agentpb.SupervisorServer.
func (a *supervisorAdapter) Usage(ctx context.Context, _ *agentpb.UsageRequest) (*agentpb.UsageResponse, error) {
	b, err := json.Marshal(a.server.Usage(ctx))
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &agentpb.UsageResponse{Usage: b}, nil
}

// Update implements agentpb.SupervisorServer.
func (a *supervisorAdapter) Update(_ context.Context, r *agentpb.UpdateRequest) (*agentpb.UpdateResponse, error) {
	return updateResponse(a.server.Update(r.GetChanges())), nil
}

// updateResponse makes an error part of the answer.
func updateResponse(err error) *agentpb.UpdateResponse {
	if err != nil {
		return &agentpb.UpdateResponse{Error: err.Error()}
	}
	return &agentpb.UpdateResponse{}
}
