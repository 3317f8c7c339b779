//go:build linux

// Command guest is the first process of the machines that vm's tests boot. It
// answers one line on the agent's port for each line that it reads there, and
// says "ready" first. It stands in for agentd, which is in another layer.
package main
