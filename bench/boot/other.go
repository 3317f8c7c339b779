//go:build !linux

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "bench-boot: machines are measured on Linux only")
	os.Exit(1)
}
