//go:build linux

// Package system makes a machine out of a kernel: file systems, the
// workload's root, network, clock, randomness, and the way out.
//
//	Boot ─► handshake ─► Root.Enter (disks, overlay, pivot) ─► Network ─► names
//
// Every path under /etc is written after the thread has entered the workload's
// root, so that a link of the image means what it means to the workload.
//
// It does not protect the guest from its own root user.
package system
