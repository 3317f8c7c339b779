package agentpb

import (
	"io"

	"google.golang.org/grpc/grpclog"
)

// QuietLog drops what gRPC logs in this process: its lines quote what the peer
// sent (attack: a guest that answers with a malformed header, where the
// environment has GRPC_GO_LOG_SEVERITY_LEVEL). main calls it before anything else
// of gRPC is used.
func QuietLog() {
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard))
}
