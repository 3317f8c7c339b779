//go:build !linux

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "bench-mcp: memory is measured on Linux only")
	os.Exit(1)
}
