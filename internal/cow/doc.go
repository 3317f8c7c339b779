// Package cow says what a guest changed in a directory of the host that it had
// copied on write, and writes chosen changes back.
//
//	what the guest was shown ─► Recorder ─► file ─► Base ┐
//	the guest's layer (its own word) ─► Compare ◄────────┴── the host's directory, an os.Root
//	                                       └─► Change ─► Apply ─► the host's directory
//
// Nothing of the guest's list is believed: names, types, sizes and links are
// compared with what the host has, and a change is refused that would be lost
// on it, lead elsewhere or run later (Refusal). No link is followed for a
// change, and each file is replaced by one rename.
//
// # What it doesn't protect against
//
// A change that is applied is the guest's in full: what a compiler, a test or a
// tool makes of it is for who applies it to judge. The list of names that run
// later (rules.go) is of what is known. Between the last look at a file and its
// rename the host's own change is lost. A crash of the host may lose what the
// kernel has not written yet. Hard links between the host's files are broken,
// and extended attributes, owners and times are not carried.
package cow
