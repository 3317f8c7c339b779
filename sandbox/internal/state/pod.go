package state

import "net/netip"

// Pod is the network of a sandbox that is a pod of Kubernetes.
type Pod struct {
	// Namespace is the inode of the network namespace that the sandbox starts in: what opens ports in it first makes sure of it.
	Namespace uint64 `json:"namespace"`
	// ResolvConf is the file that names the pod's resolvers; "" is the node's own.
	ResolvConf string `json:"resolv_conf,omitempty"`
	// Nameservers are those of ResolvConf that are asked; nil is all of them, and an empty list none.
	Nameservers []netip.Addr `json:"nameservers"`
	// Node are the addresses of the node: it is this machine, though none of its interfaces is in the namespace.
	Node []netip.Addr `json:"node,omitempty"`
}
