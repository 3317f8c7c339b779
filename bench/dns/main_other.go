//go:build !linux

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "bench/dns: it needs Linux: its guest is a network namespace")
	os.Exit(1)
}
