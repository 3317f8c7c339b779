package agentclient

import (
	"fmt"

	"github.com/msb-project/msb/agentd/agentpb"
)

// execOrder checks that a guest keeps to the schema's order of messages: started once and
// first, or exit alone; then output and acknowledgements; exit last.
type execOrder struct{ started bool }

func (o *execOrder) check(resp *agentpb.ExecResponse) error {
	switch r := resp.GetResponse().(type) {
	case *agentpb.ExecResponse_Started:
		if o.started {
			return fmt.Errorf("%w: exec started twice", ErrProtocol)
		}
		o.started = true
		return nil
	case *agentpb.ExecResponse_Stdout, *agentpb.ExecResponse_Stderr, *agentpb.ExecResponse_StdinAck:
		if !o.started {
			return fmt.Errorf("%w: output before exec started", ErrProtocol)
		}
		return nil
	case *agentpb.ExecResponse_Exit:
		return o.checkExit(r.Exit)
	}
	return fmt.Errorf("%w: an exec message of unknown kind", ErrProtocol)
}

// checkExit refuses codes that no process can have: callers exit with the code, and 256 would
// become 0, success.
func (o *execOrder) checkExit(e *agentpb.Exit) error {
	if e.GetCode() < 0 || e.GetCode() > 255 || e.GetSignal() > maxSignal {
		return fmt.Errorf("%w: exit code %d, signal %d", ErrProtocol, e.GetCode(), e.GetSignal())
	}
	if e.GetSignal() != 0 && e.GetCode() == 0 {
		return fmt.Errorf("%w: exit by signal %d with code 0", ErrProtocol, e.GetSignal())
	}
	failed := e.GetStartError() != agentpb.StartError_START_ERROR_UNSPECIFIED
	if failed == o.started || (failed && e.GetCode() == 0) {
		return fmt.Errorf("%w: exit does not fit the start", ErrProtocol)
	}
	return nil
}

// maxSignal is Linux's highest signal number, SIGRTMAX.
const maxSignal = 64
