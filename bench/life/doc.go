// Command life measures what sandboxes that stay cost their user at the command line, each beside the tool that does the
// same without msb, in turns:
//
//	msb ls of 10,000 sandboxes that are recorded │ find, which asks for each of the same directories
//	msb clone, msb snapshot create of a disk     │ cp of the disk, in the same file system
//	msb ssh NAME true                            │ msb exec NAME true
//
// The disk has 1 GiB, most of it random bytes that a guest wrote. It lies in the temporary directory's file system
// (on=tmp) and, if this process may mount one (root, mkfs.xfs), in an XFS, whose files share blocks; -xfs=false leaves that
// out.
//
//	make bench-life        # this, published ports, and 50 sandboxes at once
//	go run ./bench/life -msb bin/msb
//
// The guest is emulated, so read the ratios. It exits 0 when a target is missed, and 1 when it could not measure.
package main
