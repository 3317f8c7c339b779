// Package diskstore keeps disks of sandboxes under one directory, in chunks that are named by what they hold, so that
// snapshots share what is equal in them.
//
//	names/NAME/snapshot.json   what it was taken of, and the digest of the list
//	names/NAME/disk.chunks     the disk's size, and place and digest of each chunk that isn't all zeros
//	names/NAME/memory          the memory of the machine, for a snapshot that has it
//	chunks/AB/ABCD…            a chunk, by the SHA-256 of its bytes
//	tmp/ID/                    what a command is about to make or to remove
//	lock                       shared by those who use chunks, exclusive for who removes those that nobody needs
//
// Chunks are plain bytes in sparse files: where the file system can share blocks (FICLONERANGE: Btrfs, XFS) a chunk takes
// none of its own. Compressed ones couldn't be shared, and would be decompressed before they are checked.
//
// A name appears by one rename, once everything that it needs is on the disk. What a kill leaves is a directory in tmp,
// which has the next command look for chunks that no list names. All that is read back is checked against its digest.
//
// What it does not protect against: the user who owns the directory, and who can change lists and chunks so that they
// agree.
package diskstore
