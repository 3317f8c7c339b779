package kernel

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"io"
)

// segmentOffset is where the kernel begins in the file: page-aligned, so that
// it has the same offset in its page as in memory.
const segmentOffset = 0x1000

// writeELF writes the image as an ELF64 executable with one loadable segment
// and one PVH note.
func (img *kernelImage) writeELF(w io.Writer) error {
	// Eight bytes for a 32-bit address: QEMU reads eight whatever the size says.
	note := binary.LittleEndian.AppendUint64(noteHeader(8), uint64(img.pvhEntry))
	const ehdrBytes, phdrBytes = 64, 56
	noteOffset := uint64(ehdrBytes + 2*phdrBytes)

	header := elf.Header64{
		Type: uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT),
		Entry: img.entry, Phoff: ehdrBytes, Ehsize: ehdrBytes, Phentsize: phdrBytes, Phnum: 2,
	}
	copy(header.Ident[:], elf.ELFMAG)
	header.Ident[elf.EI_CLASS] = byte(elf.ELFCLASS64)
	header.Ident[elf.EI_DATA] = byte(elf.ELFDATA2LSB)
	header.Ident[elf.EI_VERSION] = byte(elf.EV_CURRENT)

	size := uint64(len(img.bytes))
	progs := []elf.Prog64{
		{
			Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_W | elf.PF_X), Off: segmentOffset,
			Vaddr: img.load, Paddr: img.load, Filesz: size, Memsz: size, Align: segmentOffset,
		},
		{
			Type: uint32(elf.PT_NOTE), Flags: uint32(elf.PF_R), Off: noteOffset,
			Filesz: uint64(len(note)), Memsz: uint64(len(note)), Align: 4,
		},
	}
	var head bytes.Buffer
	for _, part := range []any{header, progs, note} {
		if err := binary.Write(&head, binary.LittleEndian, part); err != nil {
			return err
		}
	}
	head.Write(make([]byte, segmentOffset-head.Len()))
	if _, err := w.Write(head.Bytes()); err != nil {
		return err
	}
	_, err := w.Write(img.bytes)
	return err
}
