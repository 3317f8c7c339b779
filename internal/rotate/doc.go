// Package rotate writes files of bounded size: a file that is full is renamed to "<path>.1", that one to "<path>.2", and
// so on, and the oldest is deleted. It is made for logs and captures that a guest can make grow for ever.
//
// A file holds whole pieces (lines, blocks), also after a full disk. The package neither locks nor syncs: what was
// written last may be lost with the host's power.
package rotate
