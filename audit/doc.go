// Package audit owns the record of what was decided: one Event for each
// verdict, written as one line of JSON to a file or a stream.
//
// Data flow: the gateway, dnsguard and secretproxy call Emit on the path of a
// packet; Log puts the event on a bounded queue and returns; one goroutine of
// its own encodes, writes and rotates.
//
// What this package does not protect against:
//   - It can lose events. A disk slower than the guest fills the queue; the
//     loss is counted and the count is written as a line of its own. A verdict
//     is never held up for its line.
//   - It can't recognise a secret. Event has no field for a value, and paths
//     are cut at the query, but a caller that puts a value into Message has
//     written it to disk.
//   - Strings that a guest chose are kept as they are in the JSON (escaped as
//     JSON demands) and made harmless for a terminal only by FormatHuman.
//   - The file isn't signed: whoever may write it may change it.
package audit
