//go:build linux

// Command msb-tour shows, from inside a sandbox, what the sandbox is for: the
// program that `make run` runs. It exits 1 when something is not as expected.
package main
