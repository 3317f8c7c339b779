//go:build linux

package agentd

import (
	"errors"
	"testing"

	"github.com/msb-project/msb/agentd/agentpb"
)

// TestI18_CopiesNeedNewRandomness: without it a copy of a saved machine goes no further.
func TestI18_CopiesNeedNewRandomness(t *testing.T) {
	t.Parallel()
	broken := errors.New("no random device")
	if err := new(guest).renew(&agentpb.HandshakeRequest{}, nil); err == nil {
		t.Error("a copy without randomness goes on")
	}
	if err := new(guest).renew(&agentpb.HandshakeRequest{Entropy: make([]byte, 64)}, broken); !errors.Is(err, broken) {
		t.Errorf("a copy that can't be seeded: %v", err)
	}
}
