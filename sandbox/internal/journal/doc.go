// Package journal opens and closes what is written down of a sandbox: its audit log, its capture and the policy that is
// learned from what it did. A record that can't be written is an error before anything runs, or is told at the end.
//
// What it does not protect against: a reader of a pipe that stops reading. The end of a sandbox waits for it for a bounded
// time, and what it did not take is lost.
package journal
