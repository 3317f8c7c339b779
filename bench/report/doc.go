// Command report runs the programs of bench, reads what they measured and writes docs/benchmarks.md, with plots, for
// make bench. For make bench-quick it prints the same, shorter.
//
//	programs ─ bin/bench/*.txt, Go's benchmark format ─► tables ─► ratios, floors, markdown, plots
//
// A value of msb is compared with the values of its peers that have the same name but for the part of=, round by round.
// A ratio below a floor of bench/floors.toml makes the program fail, once everything is written.
//
// It is a module of its own, for what draws the plots brings more than msb itself needs.
package main
