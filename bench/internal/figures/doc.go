// Package figures is what the programs under bench share: it keeps the values that they measure, writes each as a line
// of Go's benchmark format (golang.org/design/14313-benchmark-format), and gives medians with their spread for tables.
//
// A series is named for what is measured and whom it is of, "Net/up1/of=msb". The part of= comes last, so that
// bench/report finds the peers that a figure is compared with, and benchstat shows them beside each other with
// -col /of.
//
// It measures nothing and compares nothing.
package figures
