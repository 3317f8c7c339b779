// Package lazyregexp compiles regular expressions when they are first used: those of the whole program would take a third of
// the start of msb, and a command needs few.
package lazyregexp
