package kernel

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// noteType is XEN_ELFNOTE_PHYS32_ENTRY of Xen's public headers: the 32-bit
// entry point of the PVH boot protocol.
const noteType = 18

// noteName is the owner of Xen's ELF notes, padded to four bytes with its NUL.
const noteName = "Xen\x00"

// findPVHEntry looks for the note in a kernel that has no ELF headers left:
// the note lies in its .notes section, which is part of the image.
func findPVHEntry(image []byte) (uint32, error) {
	for _, descBytes := range []uint32{8, 4} {
		want := noteHeader(descBytes)
		if i := bytes.Index(image, want); i >= 0 && i+len(want)+4 <= len(image) {
			return binary.LittleEndian.Uint32(image[i+len(want):]), nil
		}
	}
	return 0, fmt.Errorf("%w: the kernel has no PVH entry (CONFIG_PVH)", errFormat)
}

// noteHeader is the head of a PVH note: name size, description size, type, name.
func noteHeader(descBytes uint32) []byte {
	b := binary.LittleEndian.AppendUint32(nil, uint32(len(noteName)))
	b = binary.LittleEndian.AppendUint32(b, descBytes)
	b = binary.LittleEndian.AppendUint32(b, noteType)
	return append(b, noteName...)
}
