// Package node installs msb's runtime on a node of Kubernetes, and takes it away again. It is what the DaemonSet under
// deploy/ runs.
//
//	image of the DaemonSet                     node
//	  /opt/msb/bin, /opt/msb/lib  ─────────►  PREFIX/bin, PREFIX/lib
//	  /config/{floor,shim}.toml   ─────────►  PREFIX/etc (checked first; followed while it runs)
//	                                          /etc/containerd/conf.d/msb.toml, and the line that imports it
//
// All of msb is in PREFIX; of the node's own files one line of containerd's configuration is changed. containerd is
// restarted when what it reads has changed, and not otherwise. Running pods keep the files that they were started with: a
// file is replaced, never rewritten. As long as a machine of a pod runs, its files are not taken away.
//
// The program is root on the node, as every installer of a runtime is. It speaks to no API server.
package node
