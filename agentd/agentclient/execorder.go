package agentclient

import (
	"fmt"

	"github.com/msb-project/msb/agentd/agentpb"
)

// execOrder holds a guest to the order that the schema states: started once
// and first, or exit alone; output and acknowledgements between; exit last.
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

// checkExit keeps codes to what a process can have: callers pass them on as
// their own exit code, where 256 would turn into success.
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
