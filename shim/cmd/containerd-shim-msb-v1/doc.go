// Command containerd-shim-msb-v1 is the shim by which containerd runs pods in msb's microVMs: see package shim.
//
// Data flow: containerd starts the program and calls it over a socket; package shim answers with the SDK.
//
// What it does not protect against: whoever may call containerd, who owns the host anyway.
package main
