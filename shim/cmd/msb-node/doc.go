// Command msb-node installs msb's runtime on a node of Kubernetes, where it runs as the DaemonSet of deploy/ with the node's
// root directory at /host:
//
//	msb-node run        install, follow the operator's files, and uninstall when it is told to end
//	msb-node install    once
//	msb-node uninstall  take it away again, unless machines of pods still run
//	msb-node check      exit 1 if something of it is missing, or another version's
package main
