// Package deploy holds what installs msb in a cluster, and its tests: a Kustomize base, a Helm chart that renders the same,
// and samples. docs/kubernetes.md says how they are used. It is a module of its own, for its tests need much of Kubernetes.
package deploy
