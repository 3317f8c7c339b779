//go:build !linux

package supervisor

import (
	"fmt"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/sandbox/internal/state"
)

func (s *supervisor) shareDirectories() error {
	if len(s.plan.Directories) > 0 {
		return fmt.Errorf("%w: this system can't", state.ErrDirectory)
	}
	return nil
}

func offerDirectory(*supervisor, agentclient.HostDirectory) (uint32, func(), error) {
	return 0, nil, fmt.Errorf("%w: this system can't", state.ErrDirectory)
}

type sharedPort struct{}
