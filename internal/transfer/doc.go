// Package transfer is the layout of a small disk without a file system by which host and guest hand each other what is
// large. A console port takes 4 KiB at a time, which costs an emulated guest more than all else; a disk takes a whole
// piece in one request.
//
// The disk has lanes, each of which one call uses at a time, in one direction. Piece n of the call is in slot n of its
// lane, counted round and round. Both ends tell each other by messages of the call: that a piece was written, and that it
// was read, so that its slot may be written again. What a slot holds is worth as much as such a message: the other end
// reads it once, into its own memory, before it looks at it. Behind a piece to the guest is its mark, by which the guest
// tells it from what an empty disk holds.
package transfer
