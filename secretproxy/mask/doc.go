// Package mask finds byte strings in data that streams past, in whatever
// spelling they come, and replaces them: real values in responses, placeholders
// in requests.
//
// Data flow: Compile turns needles into patterns, one for each spelling that
// depends on the whole needle (as it is, upper and lower case, hexadecimal,
// base64 and base32 at each alignment, base64 twice, numbers). Spellings that
// change single characters (percent, backslash and HTML escapes, folded lines,
// UTF-16, quoted-printable) are undone in views of the data, in which the same
// patterns are sought; a needle's own escapes are undone the same way, and of
// needles that have any, there are views for each kind of escape too. A view is
// made of another one only near what that one changed. A Stream cuts its input
// nowhere: a needle is found wherever the pieces end. What is held back of an
// answer depends on public state alone (see tokenRun): a guest that watches which
// bytes come late learns nothing of a value. Needles that a guest may have chosen
// make a later stage (see Set.Then), which searches what the first one gave out. Decode undoes content encodings, so
// that compressed bodies are searched too.
//
// What this package does not protect against:
//   - Spellings that it doesn't know: a value that a server reverses, encrypts,
//     compresses within the body, or spells in Morse goes through.
//   - Three single-character spellings on top of each other, or a spelling of
//     more than maxWidth bytes for each of the value's.
//   - A server that gives a value away in pieces. Of a live stream, fewer than
//     eight characters pass at once; a value with blanks or brackets, of its own
//     or in its spelling, or one that the end of a message of gRPC cuts, is masked
//     only where it comes in one piece.
//   - Guesses at a whole value: a server that repeats what it is sent shows
//     whether it was one. A value must be too long to be guessed.
package mask
