// Package rootfs flattens image layers into one tree and writes that tree out as
// one tar stream.
//
//	tar stream ─► ReadLayer (checks each entry, contents to a Spool) ─► Layer
//	Layers, lowest first ─► Tree.Apply (whiteouts, links, duplicates) ─► Tree
//	Tree ─► Tree.WriteTar: parents first, every name once, hard links last
//
// Names are resolved in the tree as a container runtime resolves them in a root
// directory: links in the parents of an entry are followed inside the root, at most
// maxLinks of them, and nothing can name a place outside, since there is none.
// No name of a layer ever reaches the host's file system (invariant 14).
//
// It does not judge what the files do, and it keeps set-user-ID bits, devices
// and capabilities: these act in the guest only.
package rootfs
