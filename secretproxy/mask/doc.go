// Package mask finds byte strings in data that streams past, in whatever
// spelling they come, and replaces them: real values in responses, placeholders
// in requests.
//
// Data flow: Compile turns needles into patterns, one for each spelling that
// depends on the whole needle (as it is, upper and lower case, hexadecimal,
// base64 at each of its three alignments). Spellings that change single
// characters (percent, JSON, HTML escapes, line breaks inside base64, UTF-16)
// are undone in a second view of the data, in which the same patterns are
// sought. A Stream cuts its input nowhere: what might be the beginning of a
// needle is held back until more came. What is held back of an answer depends
// on its shape alone (see shape.go): a guest that watches which bytes come late
// learns nothing of a value. Decoder undoes content encodings, so
// that compressed bodies are searched too.
//
// What this package does not protect against:
//   - Spellings that it doesn't know: a value that a server reverses, encrypts,
//     compresses within the body, or spells in Morse goes through.
//   - Two single-character spellings on top of each other, such as a percent
//     escape of a JSON escape.
//   - A server that gives a value away in pieces. On a live stream, where
//     holding bytes back would stall a conversation, the beginning of a value
//     can pass when the server pauses in the middle of it: up to three
//     characters at once, more after a second. The rest is replaced.
//   - Guesses at a whole value: a server that repeats what it is sent shows
//     whether it was one. A value must be too long to be guessed.
package mask
