package main

import (
	"context"
	"fmt"
	"os"

	containerdshim "github.com/containerd/containerd/v2/pkg/shim"

	"github.com/msb-project/msb/sandbox"
	"github.com/msb-project/msb/shim"
)

func main() {
	sandbox.MaybeRun()                                       // the shim is the program of its sandboxes' supervisors and VMMs, too
	if len(os.Args) == 3 && os.Args[1] == "check-settings" { // for `msb doctor --node`
		if err := shim.CheckSettings(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	shim.Register()
	containerdshim.RunShim(context.Background(), shim.NewManager(), func(c *containerdshim.Config) {
		c.NoReaper, c.NoSubreaper = true, true // the SDK waits for its own children
	})
}
