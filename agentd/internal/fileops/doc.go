// Package fileops does the host's file operations in the workload's root.
//
// Its functions follow paths as any process does, so they run on a thread that
// stands in that root (workload.Root). They run with root's rights, whoever owns
// the files: the host asks, and it owns the guest.
//
// The guest's processes change the tree at the same time. Each operation is one
// that the kernel answers whole, or leaves either the old file or the new one;
// nothing here waits on a FIFO or reads a device.
package fileops
