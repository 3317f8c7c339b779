//go:build !linux

package mcp

// ram is this machine's memory in bytes, 0 if it is unknown.
func ram() int64 { return 0 }
