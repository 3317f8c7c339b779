// Package foldname says which names a file system of any kind may take for one: case and invisible characters are ignored by
// some, dots and spaces at the end by others. Who looks for a name in what a guest wrote, or keeps one from a guest, compares
// what is left.
//
// It doesn't know the short names of FAT and NTFS (PROGRA~1), but for that of .git.
package foldname
