// Package journal opens and closes the records of a sandbox: its audit log, its capture and the policy that is learned
// from what it did. A record that can't be opened is an error before anything runs; one that can't be written later is
// reported at the end.
//
// What it does not protect against: a reader of a pipe that stops reading. The end of a sandbox waits for it for a bounded
// time, and loses what it did not read.
package journal
