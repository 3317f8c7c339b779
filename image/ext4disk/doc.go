// Package ext4disk writes ext4 file systems into plain files, without root,
// without mounting and without mke2fs.
//
//	tar stream ─► Write ─► read-only disk (tar2ext4, then its faults put right)
//	size       ─► CreateEmpty ─► empty writable disk, sparse, with a journal
//
// The faults of tar2ext4 (hcsshim v0.15.0) that are dealt with, here or by the
// writer of the tar stream (rootfs):
//
//   - the attribute block of an inode is sorted by a comparison that is no order,
//     so that the kernel, which searches it in order, misses attributes: sorted
//     again here (xattrorder.go);
//   - bits of inodes that do not exist are clear in the inode bitmaps, which e2fsck
//     calls an error: set here (repair.go);
//   - POSIX ACLs are stored in the form of getxattr, not of the disk: converted by rootfs;
//   - times before 1970 and after 2038 are encoded wrong: clamped by rootfs;
//   - a file of more than 340 extents (42.5 GiB) gets a wrong extent tree: MaxFileBytes;
//   - a second entry of one name with contents is an error, a hard link before its
//     target too: rootfs writes each name once, in order;
//   - zeros are written out: Write leaves holes.
//
// It does not read file systems that a guest wrote, and nothing here mounts one.
package ext4disk
