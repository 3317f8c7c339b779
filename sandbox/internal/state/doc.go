// Package state is what a sandbox's caller and its supervisor share: the plan and the status lines that cross between
// the two processes, the files in a sandbox's directory, the names, errors and kinds of failure, and the process ids and
// sockets by which a later command finds a supervisor. What of it is public has its name in package sandbox too.
//
// Files are read as anybody's: no link is followed, nobody is waited for, what is read is bounded. Only files and
// directories of msb's own form are removed.
//
// What it does not protect against: a user who changes the files of a sandbox of theirs by hand. It tells them apart from
// msb's where it can, and names the file.
package state
