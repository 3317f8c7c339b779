// Command work measures what working in a sandbox costs beside doing the same on the guest's own disk, in one guest:
//
//	commands     Sandbox.Exec                │ fork and exec in the guest
//	copies       msb cp, both ways           │ dd to and from the guest's disk, in the guest
//	files        metadata operations, reads  │ the same program on the guest's disk
//	-v …:rw      and writes in order         │
//	tools        git status, npm ci,         │ the same in a directory of the guest's disk
//	             go build in a -v directory  │
//
// Beside files stands a FUSE server in the guest itself that answers from its memory: what no server of the host's can be
// faster than.
//
// Both sides take turns and swap places each round, so that other load hits both: read the ratios, not the seconds. Each
// ratio is of the medians of all rounds. Before everything that reads a first time, the guest drops its caches. The tools come from an
// image of Debian's packages, which is made once and kept in the user's cache directory; -tools=false leaves them out.
//
// scripts/bench-boot -only work measures copies and files of libkrun's guests beside microsandbox's, with the same program
// in them (bench/internal/guestwork), in an emulated host.
//
// The program is a benchmark: it exits 0 when a target is missed, and 1 when it could not measure.
package main
