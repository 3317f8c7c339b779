//go:build peers

// Package peers pins the programs that benchmarks compare with. It is a module
// of its own, because they need older versions of what the project uses.
package peers

import (
	_ "github.com/containers/gvisor-tap-vsock/cmd/gvproxy"
)
