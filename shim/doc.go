// Package shim makes msb a runtime of containerd, and by that of Kubernetes: a pod is one microVM, its containers are
// process trees in it.
//
//	containerd ─ ttrpc ─► service ─► pod (one sandbox.Sandbox) ─► containers in the guest
//	                        │            ▲
//	     bundle/config.json ┴► specOf ───┘ refuses what can't be honoured
//
// containerd starts `containerd-shim-msb-v1 start` for each container. The first one of a pod becomes the shim, which
// serves containerd's task API (runtime v2) until the pod's last container is deleted; the others join it by the
// annotation io.kubernetes.cri.sandbox-id (manager.go). The snapshotter's mounts are made at the bundle's rootfs and
// served to the guest read-only; what the container writes stays in the guest (rootfs.go). Policies are the node's: a
// pod's own only tightens the floor (policy.go).
//
// # What it doesn't protect against
//
// Whoever may speak to containerd's socket is root of the node: they choose any image, mount and runtime option.
// Containers of one pod share a kernel and are kept apart as containers are; the wall is around the pod.
package shim
