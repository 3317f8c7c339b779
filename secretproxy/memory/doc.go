// Package memory counts what one sandbox makes the proxy hold (invariant 11): everything whose size a guest or a server
// chooses is taken from one Budget before it is held, and given back when it is let go.
package memory
