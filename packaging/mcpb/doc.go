// Command mcpb packs msb as an MCP bundle: a zip archive with a manifest, which clients install by themselves.
//
// Data flow: bin/msb and lib/msb, built before, and the manifest with its version become one file.
//
// What it does not protect against: whoever changes the file on its way. Clients check signatures, which this makes none of.
package main
