package agentclient

import (
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/msb-project/msb/agentd/agentpb"
)

// quietEnv makes the test's program the one that is attacked.
const quietEnv = "MSB_TEST_QUIET"

// TestI8_GRPCLogsNoTraffic: a guest sends a malformed header, which gRPC quotes to standard error when its log is
// on. The second round has the log on and sees it there.
func TestI8_GRPCLogsNoTraffic(t *testing.T) {
	const sent = "bytes of an answer"
	if quiet := os.Getenv(quietEnv); quiet != "" {
		if quiet == "true" {
			agentpb.QuietLog()
		}
		answerBadly(t, sent)
		return
	}
	for quiet, want := range map[string]bool{"true": false, "false": true} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestI8_GRPCLogsNoTraffic$")
		cmd.Env = append(os.Environ(), quietEnv+"="+quiet, "GRPC_GO_LOG_SEVERITY_LEVEL=info", "GRPC_GO_LOG_VERBOSITY_LEVEL=99")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if got := strings.Contains(string(out), sent) && strings.Contains(string(out), "WARNING"); got != want {
			t.Errorf("quiet %s: the log quotes the answer: %v, want %v: %s", quiet, got, want, out)
		}
	}
}

// answerBadly is a guest that answers the handshake with a header whose value isn't base64, as its name promises.
func answerBadly(t *testing.T, value string) {
	t.Helper()
	host, guest := net.Pipe()
	defer guest.Close()
	asked := awaitCall(guest)
	go func() {
		_, _ = guest.Write(frames(func(*http2.Framer) {}))
		<-asked
		block := []byte{0x88, 0, 5} // :status 200, and a field that is not indexed
		block = append(append(block, "x-bin"...), byte(len(value)))
		_, _ = guest.Write(raw(func(f *http2.Framer) {
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: append(block, value...), EndHeaders: true, EndStream: true})
		}))
	}()
	if _, err := Dial(t.Context(), host, Options{HandshakeTimeout: 20 * time.Second}); err == nil {
		t.Error("the handshake went well")
	}
}
