//go:build linux

package main

import (
	"os"

	"github.com/msb-project/msb/agentd"
)

func main() {
	if code, ok := agentd.RunOwnProgram(); ok {
		os.Exit(code)
	}
	if err := agentd.Main(); err != nil {
		os.Stderr.WriteString("agentd: " + err.Error() + "\n")
		os.Exit(1)
	}
}
