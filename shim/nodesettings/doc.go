// Package nodesettings reads the runtime's options: the node's shim.toml, or the same text in containerd's configuration.
//
//	TOML text ─► Settings.Read ─► Settings, checked
//
// The shim reads it when a pod starts, and msb-node before it writes the file to a node. It has no part of the sandbox, so
// that msb-node stays small.
//
// # What it doesn't protect against
//
// Whether the paths are there, and whether the floor's policy is right, is seen only by what opens them.
package nodesettings
