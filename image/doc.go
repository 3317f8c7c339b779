// Package image turns an image reference into a read-only root disk.
//
// Data flow:
//
//	reference ─► source (registry, oci:, docker-archive:, dir:, builtin)
//	          ─► manifest and configuration, checked against their digests
//	          ─► layers, each counted, decompressed and checked against its diffID
//	          ─► one tree in memory (whiteouts, links and duplicates resolved there)
//	          ─► ext4 disk in a staging directory ─► fsync, rename ─► cache
//
// A name from an image is a key in a map of that tree, never a host path: there
// is no directory for a hostile layer to leave (invariant 14). File contents lie in
// one nameless spool file until they are written to the disk.
//
// The cache is content-addressed and shared by every process of one user. A
// disk is published by one rename while a lock is held, so that two pulls of
// one image do the work once and a killed pull leaves only a staging directory,
// which the next Open removes.
//
// It has many files because each kind of source, and each verb on the cache, is one; the disk itself is made by packages
// below (rootfs, ext4disk).
//
// What this package does not protect against: it does not verify signatures,
// only digests, so whoever controls a tag controls what runs in the guest. It
// does not scan contents; a set-user-ID program or a device node in an image is
// kept, because it can only act inside the guest. It does not defend the cache
// from other programs of the same user.
package image
