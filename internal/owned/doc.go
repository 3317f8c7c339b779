// Package owned removes directories that msb made, and tells them from all others.
//
// A sweep that goes by age, by a free lock or by a leading dot deletes what somebody else put there. Here a
// directory is removed only if each entry in it has a name and a type that msb gives to its own files (a Form),
// down to its last entry. Everything is looked up relative to an open directory, no link is followed, and no
// other mount is entered: not a bind mount of the same file system either.
//
// What it does not protect against: another process of the same user that swaps files while a directory is
// removed. Such a process could remove them itself.
package owned
