// Package clientconfig writes msb into the configuration of MCP clients, and takes it out again. Everything else that stands in
// a file stays as it is, comments and all; a file that can't be read, or whose servers are no table, is left alone.
package clientconfig
