// Package mcp is msb's MCP server: an agent makes sandboxes, runs programs in them and asks the network policy, under
// an operator's floor.
//
// Data flow: messages are read as lines and held to bounds of number and size (wire.go). A tool's call is decoded
// strictly (args.go), held to the floor and the bounds (floor.go), and done with the SDK of package sandbox (boxes.go, machine.go).
// Every result is one text, without structured content: clients that get both drop one of them. What a guest printed is
// escaped, bounded and marked (output.go).
//
// The server knows sandboxes by their label: it uses those that were made under its own floor, and can stop and remove
// those of other versions of the floor's file. Any other, such as one that the operator made with msb create, is not
// listed and can't be used or removed.
//
// Directories of this machine are the operator's choice, by flags; a client can't ask for one.
//
// It is larger than other packages because each call goes through one server: its floor, its bounds, its sandboxes and its
// output. Clients' configurations are written by the package clientconfig below.
//
// What it does not protect against: an agent that believes what untrusted output says. The marks tell where such
// output begins and ends, and what is done with it is the client's matter. The bound on sandboxes counts those of
// one policy file alone.
package mcp
