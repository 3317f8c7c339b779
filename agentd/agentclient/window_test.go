package agentclient

import (
	"errors"
	"testing"

	"github.com/msb-project/msb/agentd/agentpb"
)

// zeros is a stdin that never ends.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// TestI11_StdinWindowsAreCapped: whatever window an agent claims, no more than the protocol's is on its way.
func TestI11_StdinWindowsAreCapped(t *testing.T) {
	t.Parallel()
	c := dialFake(t, &fakeAgent{exec: func(s agentpb.Agent_ExecServer) error {
		if err := s.Send(started); err != nil { // it claims 2 GiB
			return err
		}
		for n := 0; n < agentpb.StdinWindowBytes; {
			req, err := s.Recv()
			if err != nil {
				return err
			}
			n += len(req.GetStdin())
		}
		ack := &agentpb.ExecResponse_StdinAck{StdinAck: agentpb.StdinWindowBytes + 1}
		if err := s.Send(&agentpb.ExecResponse{Response: ack}); err != nil {
			return err
		}
		return s.Send(exit(&agentpb.Exit{}))
	}})
	if _, err := c.Exec(t.Context(), ExecOptions{Argv: []string{"x"}, Stdin: zeros{}}); !errors.Is(err, ErrProtocol) {
		t.Errorf("a byte more than the window was acknowledged: %v, want ErrProtocol", err)
	}
}
