//go:build linux

package agentd

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/msb-project/msb/agentd/agentpb"
)

func TestPreparedMessagesAreAllOfAStart(t *testing.T) {
	t.Parallel()
	done := prepareMessages()
	for _, m := range []proto.Message{
		&agentpb.HandshakeRequest{}, &agentpb.HandshakeResponse{}, &agentpb.HostEntry{}, &agentpb.Disk{}, &agentpb.Cache{}, // of lists and alternatives too
		&agentpb.ExecRequest{}, &agentpb.ExecStart{}, &agentpb.ExecResponse{}, &agentpb.Started{}, &agentpb.Exit{},
	} {
		if name := m.ProtoReflect().Descriptor().FullName(); !done[name] {
			t.Errorf("%s is left for the start", name)
		}
	}
}
