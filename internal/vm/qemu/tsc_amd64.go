package qemu

const hasTSC = true

// readTSC is the RDTSC instruction.
func readTSC() uint64
