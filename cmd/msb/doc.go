// Command msb is the command line: a file for each verb, which parses flags and calls a package, and
// one place each for what is printed (ui.go) and for exit codes (exit.go).
//
// It has more files than other packages because it is one program: a verb is a file, and they share flags, output and
// exit codes. It holds no logic of sandboxes, policies or networks and protects nothing by itself.
package main
