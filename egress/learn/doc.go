// Package learn turns what was seen into a policy: the smallest one that would
// have let it through, with counts in its comments, for a person to read and
// prune before it is put in force.
//
// Data flow: a Collector is an audit.Sink beside the audit log. It takes the
// verdicts on flows, names and requests as they are made (in report mode, or
// replayed by a review), and Policy writes them down as rules.
//
// What this package does not protect against:
//   - It learns what the guest did, not what it should have done. A guest that
//     misbehaves while it is watched teaches that.
//   - Nothing is generalised beyond ports of one host and, above a bound, paths
//     under a common directory. The next version of a program will need more.
//   - What no rule can open (the host's own addresses, names of metadata
//     services), what a deny rule shut, and QUIC, for which clients have TCP, is
//     counted in a comment and left shut.
package learn
