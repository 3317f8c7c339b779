// Command mcp measures msb mcp as a client sees it: what its tools cost a conversation, how long it takes to start, what
// it holds while it is idle, and what it adds to a command in a sandbox and to msb run. microsandbox's MCP server runs
// beside it where it can.
//
//	start, tools/list, memory   msb mcp │ microsandbox-mcp       in turns
//	exec                        sandbox_exec │ Sandbox.Exec      in turns, one sandbox, QEMU emulation
//	run                         sandbox_run │ msb run            in turns, QEMU emulation
//
// A run is either the first of its kind (a memory size that no other run has), which boots the guest, or one that starts
// from a saved machine (docs/warm-starts.md): a client of msb mcp can't choose.
//
// microsandbox-mcp 0.7.2 is for an SDK that the npm registry does not have in that version. A module that exports the
// same names and does nothing takes its place (npm/sdk): tools/list is as it is, and its start and memory are without
// what the SDK would add. No sandbox of it is run.
//
// The program is a benchmark: it exits 0 when a target is missed, and 1 when it could not measure.
package main
