// Package rotatetest gives tests a full disk. It bounds the size of this process's files (RLIMIT_FSIZE), which shows what
// a write does that ends half-way; it shows nothing of a disk on which other calls fail too.
package rotatetest
