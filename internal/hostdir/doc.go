// Package hostdir serves one directory of the host to a guest: it answers the
// raw requests of the guest kernel's FUSE client.
//
//	guest's kernel ─ /dev/fuse ─ agentd ─ console port ─► Port.Serve ─► Server ─► os.Root ─► *at(2) with one name
//
// A node is a file that the guest looked up: its device, inode and time of
// birth, and the name under which it was last seen. Directories are opened from
// the top through an os.Root, and are used only if they are the node that was
// meant. Everything else is one name in such a directory, which no link is
// followed for. A node that was moved or replaced meanwhile is ESTALE, upon
// which the guest's kernel looks the name up again.
//
// With Options.File the guest's top is a file, and its directory a node that the
// guest has no number for.
//
// With Options.ByName a node is a name and no inode, for a guest whose overlay
// keeps what it has looked up: the directory on the way is opened name by name.
//
// The protocol is the kernel's (include/uapi/linux/fuse.h). No library is used:
// go-fuse's ProtocolServer can be fed with messages, but it trusts its kernel.
// It writes a line to the process's log for each malformed request, takes a
// second INIT while others run, and calls itself experimental.
//
// # What it doesn't protect against
//
// What the guest may write it may fill with anything: programs, hooks of
// repositories, links that lead elsewhere when a program of the host follows
// them. Everything in the directory is served except what Options.Hide names,
// hard links to files elsewhere included. A bind mount is told from the
// directory around it only where the kernel says which mount a file is of
// (Linux 5.8). Within cacheFor a guest may see attributes that the host has
// changed meanwhile. How much a guest writes is bounded by the host's disk
// alone.
package hostdir
