//go:build linux

// Package emuhost boots a whole Linux host under QEMU's emulation, with AMD's
// virtualisation emulated too, so that libkrun runs for real on a machine that
// has none.
//
//	test ─► Start ─► QEMU (2 CPUs, 2 GiB) ─► /dev/kvm ─► libkrun ─► inner guest
//	        Run  ─► agent port ─► a program in the emulated host
//
// The host is throw-away: a read-only root of the given files, a tmpfs at /tmp,
// /run and /dev/shm, loopback up, no other network, user 0. Programs run ten to
// twenty times slower than outside, and the host's clock counts instructions
// while there are any: durations measured in there compare with each other on
// any machine, with nothing outside. It is for tests only and protects nothing.
package emuhost
