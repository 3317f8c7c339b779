// Package hypervisors puts vm's backends together in the order of preference, and
// holds the one call that lets a program become a VMM.
//
//	main ─ MaybeRun ─► never returns when this process was started as a VMM
//	     └ All ─► vm.Select
//
// It decides nothing beyond the order; see vm for what a machine is and what
// is not protected against.
package hypervisors
