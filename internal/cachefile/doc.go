// Package cachefile keeps files that msb can make again: the guest's kernel, the agent's disk.
//
//	Ensure ─► as remembered? ─► hash as remembered? ─► written to a new file, renamed into place
//
// Beside each file lies FILE.sum with the hash of what was written and what stat said of the file when that hash was
// last compared. As long as stat says the same (size, inode, and the times of the last write and of the last change of
// any kind, which no program can set), the file is not read again: hashing 20 MB at every start would cost as much as a
// tenth of a start. Anything else in the file's place, another content, owner or mode, is replaced. A machine that has
// the old file open keeps it.
//
// What it does not protect against: a medium that returns other bytes than were written while stat stays the same, and
// whoever can write the cache and the sums: both belong to the trust of msb's own binary.
package cachefile
