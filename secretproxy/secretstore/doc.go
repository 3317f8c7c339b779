// Package secretstore holds real values in the supervisor: the type that never
// prints one, the sources they are read from, and the placeholders that stand
// for them in the guest.
//
// Data flow: a policy's [secrets.NAME] names a source (environment variable,
// file, command). Open reads it once, so that a wrong path is an error at start
// and not at the first request; Holder.Current hands out the present value and
// reads the source again when it changed, when its time is over, or, where
// the policy asks for it, when an upstream answered 401. The proxy puts a value into a request with
// Secret.Reveal, the only way to the bytes.
//
// What this package does not protect against:
//   - A value that is put into a request becomes a Go string inside net/http,
//     and the garbage collector may have copied it. Close overwrites what this
//     package holds, not those copies; core dumps are switched off by the
//     supervisor.
//   - Whoever may read the supervisor's memory, the source file or the output
//     of the source command has the value.
//   - The supervisor's own environment still holds what an "env:" source was
//     read from; children started here don't inherit it.
package secretstore
