// Command soak makes, uses and removes sandboxes again and again, and looks whether anything is left of them: processes,
// descriptors, memory, files.
//
// A round makes a sandbox, runs a command in it, copies files there and back, publishes a port and reads through it, takes a
// snapshot of it while it runs, clones that, and removes all. The same is done with one sandbox that runs all the time, but
// for its removal. After each round the figures are taken; what grew is found by the medians of the first third of the
// rounds and of the last, with a slack for each figure that is printed with it.
//
//	go build -o bin/bench/ ./bench/soak && bin/bench/soak -program bin/msb -rounds 300
//
// It does not find what grows more slowly than the slack in all the rounds, and it measures no speed.
package main
