package hypervisors

import (
	"github.com/msb-project/msb/internal/vm/krun"
	"github.com/msb-project/msb/internal/vm/runner"
)

// run runs the hidden verb that args begin with, and returns false if they
// don't.
func run(args []string) (int, bool) {
	if len(args) < 2 {
		return 0, false
	}
	switch args[1] {
	case runner.Verb:
		return runner.Main(), true
	case krun.Verb:
		return krun.Main(), true
	}
	return 0, false
}
