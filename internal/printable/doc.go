// Package printable says which characters terminals and editors act on instead of showing them. What a guest, a registry
// or a file says is cleaned of them wherever it is printed.
//
// It doesn't tell apart letters that look alike.
package printable
