// Package vmtest boots guests for tests: a tiny first process that answers
// lines on the agent's port, disks made without mounting anything, and a whole
// emulated host with nested virtualisation in which the libkrun backend runs
// for real.
//
// It needs Go's compiler and mke2fs on the machine that runs the tests, and no
// right beyond an ordinary user's. It is for tests only: nothing in it defends
// against a hostile guest.
package vmtest
