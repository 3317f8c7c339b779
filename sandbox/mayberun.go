package sandbox

import (
	"os"

	"github.com/msb-project/msb/agentd/agentpb"
	"github.com/msb-project/msb/internal/vm/hypervisors"
	"github.com/msb-project/msb/sandbox/internal/supervisor"
)

// mayRun is set once MaybeRun was called: a program that doesn't call it would start itself again and again.
var mayRun bool

// hooks are what a supervisor has this package do.
var hooks = supervisor.Hooks{Replan: replan, Children: newChildCalls}

// MaybeRun must be the first thing that main (or TestMain) of a program that starts sandboxes does: a
// process that was started as supervisor or VMM becomes one here and does not return.
func MaybeRun() {
	mayRun = true
	hypervisors.MaybeRun()
	if len(os.Args) > 1 && os.Args[1] == Verb {
		agentpb.QuietLog()
		os.Exit(supervisor.Run(hooks))
	}
	if len(os.Args) == 3 && os.Args[1] == partVerb {
		os.Exit(lendPart(os.Args[2], os.Stdout, os.Stderr))
	}
}
