//go:build linux

// Command agentd is the guest's PID 1; see package agentd.
package main
