//go:build linux

package main

import (
	"os"

	"github.com/msb-project/msb/internal/vm/krun"
	"github.com/msb-project/msb/internal/vm/runner"
)

// exitUsage is the exit code of a call that no supervisor makes.
const exitUsage = 2

func main() {
	verb := ""
	if len(os.Args) > 1 {
		verb = os.Args[1]
	}
	switch verb {
	case runner.Verb:
		os.Exit(runner.Main())
	case krun.Verb:
		os.Exit(krun.Main())
	}
	os.Exit(exitUsage)
}
