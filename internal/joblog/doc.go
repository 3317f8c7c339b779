// Package joblog keeps the output of a process in a bounded ring of files, and reads it back while it is written.
//
// Data flow: a Writer appends records (time, stream, bytes) to a segment, a file. A segment that is full is followed by
// one with the next number, and the oldest is deleted. Each segment begins with how many bytes of output came before
// it, written or not, so that a Reader can say how much is missing. Writer and Reader share nothing but the files: a
// reader that stops reading holds nobody up, and one may come after the writing process was killed.
//
// What it does not protect against: it does not sync, so what was written last may be lost with the host's power. Bytes
// are the guest's, terminal escapes included.
package joblog
