package krun

import "github.com/msb-project/msb/internal/vm"

// config is what the confined process needs to build the machine. It travels
// over a pipe; it holds paths and descriptor numbers, no secret.
type config struct {
	Libkrun   string
	Libkrunfw string
	Kernel    string
	Cmdline   string
	CPUs      uint8
	MemoryMiB uint32
	Disks     []vm.Disk
	// AgentFD and DirectoriesFD are stream sockets, NetFD is one too, or -1;
	// ConsoleFD is a terminal.
	AgentFD, DirectoriesFD, ConsoleFD, NetFD int
	MAC                                      []byte
}
