// Command typecheck checks the types of a module's packages and their tests as another system compiles them, given by GOOS,
// GOARCH and CGO_ENABLED. It reads everything from source, of dependencies without function bodies: compiling those for
// each system, which go vet needs, takes ten times as long.
//
//	GOOS=darwin GOARCH=arm64 CGO_ENABLED=0 typecheck DIR
//
// What it does not find: what only a compiler or linker sees, such as missing assembly, and anything that happens at run
// time.
package main
