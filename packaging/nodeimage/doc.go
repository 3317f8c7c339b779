// Command nodeimage packs the image of the DaemonSet that installs msb on the nodes of a cluster (deploy/): msb, its shim,
// their libraries and msb-node, all built before, in one layer, as an archive that `ctr images import` and registries'
// tools take.
//
// What is the same packs the same. It does not protect against whoever changes the file on its way: a registry's digest does.
package main
