package main

import (
	"context"

	containerdshim "github.com/containerd/containerd/v2/pkg/shim"

	"github.com/msb-project/msb/sandbox"
	"github.com/msb-project/msb/shim"
)

func main() {
	sandbox.MaybeRun() // the shim is the program of its sandboxes' supervisors and VMMs, too
	shim.Register()
	containerdshim.RunShim(context.Background(), shim.NewManager(), func(c *containerdshim.Config) {
		c.NoReaper, c.NoSubreaper = true, true // the SDK waits for its own children
	})
}
