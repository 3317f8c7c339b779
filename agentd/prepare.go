//go:build linux

package agentd

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/msb-project/msb/agentd/agentpb"
)

// prepareMessages does what the messages of the handshake and of an exec do at their first use. A machine that is saved has it
// behind itself, and so have its copies: in emulation it takes a tenth of their start.
func prepareMessages() (done map[protoreflect.FullName]bool) {
	done = map[protoreflect.FullName]bool{}
	for _, m := range []proto.Message{
		&agentpb.HandshakeRequest{}, &agentpb.HandshakeResponse{}, &agentpb.ExecRequest{}, &agentpb.ExecResponse{}, &agentpb.ShutdownRequest{}, &agentpb.ShutdownResponse{},
	} {
		prepareMessage(m.ProtoReflect(), done)
	}
	return done
}

func prepareMessage(m protoreflect.Message, done map[protoreflect.FullName]bool) {
	if done[m.Descriptor().FullName()] {
		return
	}
	done[m.Descriptor().FullName()] = true
	_ = proto.Size(m.Interface()) // looks at the type's fields
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		switch f := fields.Get(i); {
		case f.Message() == nil || f.IsMap():
		case f.IsList():
			prepareMessage(m.NewField(f).List().NewElement().Message(), done)
		default:
			prepareMessage(m.NewField(f).Message(), done)
		}
	}
}
