// Package guestwork is the program that bench/work and bench/boot run in a guest, to work with the files of one directory
// in it. Both are static and carry it, so that a guest needs nothing but the benchmark's own file:
//
//	PROGRAM inside meta DIR N     N small files made, looked up, listed, read, renamed and removed
//	PROGRAM inside stream DIR N   a file of N MiB written in order and synced, and read with nothing cached
//
// It prints rates as one line of JSON. They are of the guest's clock, so what it costs to start the program is not in
// them. It drops the whole guest's caches, which takes root.
package guestwork
