// Package tartree writes directories as tar archives and extracts archives into
// directories. Both ends of a copy between host and guest use it.
//
//	os.Root ─► Pack ─► archive ─► Unpack (entries into a directory) ─► os.Root
//	                          └─► Extract (one file or directory, under a name of the caller's)
//
// No entry of an archive gets outside of the os.Root that it is extracted into,
// whatever its name or the links before it. Extract holds more: an archive from
// a hostile guest writes nothing beside the one name that the caller chose.
// Devices, FIFOs and sockets are neither read nor made: below a directory they are
// reported, and Pack of one is an error.
//
// Without MaxBytes and MaxEntries only the disk bounds what is extracted.
// Extended attributes and the holes of sparse files are not kept. Who else
// writes to the same directory at the same time can make single files fail.
package tartree
