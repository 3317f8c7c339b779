package runner

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"io"
	"os"
)

// needs is what the dynamic linker reads of a program or library before it looks for others. Package debug/elf reads the
// tables of all sections and symbols for it, which the linker has no use for, and which takes several times as long.
type needs struct {
	machine  elf.Machine
	linker   string   // the one that a program names; "" for a library
	names    []string // DT_NEEDED
	runPaths []string // DT_RPATH and DT_RUNPATH, lists of directories
}

// Sizes of ELF's tables for 64 bits, and bounds of what a file may make this read.
const (
	headerBytes  = 64
	segmentBytes = 56
	dynamicBytes = 16

	maxSegments  = 512
	maxDynamic   = 1 << 20
	maxNameBytes = 4 << 10
)

var errNoELF = errors.New("no ELF file of 64 bits and of this machine's order of bytes")

// readNeeds reads a file of 64 bits. VMMs are, and load no others.
func readNeeds(path string) (*needs, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return needsOf(f)
}

func needsOf(f io.ReaderAt) (*needs, error) {
	native := binary.NativeEndian
	head := make([]byte, headerBytes)
	if _, err := f.ReadAt(head, 0); err != nil {
		return nil, err
	}
	data := elf.ELFDATA2MSB
	if native.Uint16([]byte{1, 0}) == 1 {
		data = elf.ELFDATA2LSB
	}
	count := int64(native.Uint16(head[56:]))
	if string(head[:4]) != elf.ELFMAG || elf.Class(head[elf.EI_CLASS]) != elf.ELFCLASS64 || elf.Data(head[elf.EI_DATA]) != data ||
		native.Uint16(head[54:]) != segmentBytes || count > maxSegments {
		return nil, errNoELF
	}
	table, err := part(f, native.Uint64(head[32:]), uint64(count*segmentBytes), maxSegments*segmentBytes)
	if err != nil {
		return nil, err
	}
	n := &needs{machine: elf.Machine(native.Uint16(head[18:]))}
	return n, n.readSegments(f, table)
}

// segment is what counts of an entry of a program's header.
type segment struct{ offset, address, size uint64 }

func (n *needs) readSegments(f io.ReaderAt, table []byte) error {
	native := binary.NativeEndian
	var loaded []segment
	var dynamic, linker segment
	for ; len(table) > 0; table = table[segmentBytes:] {
		s := segment{native.Uint64(table[8:]), native.Uint64(table[16:]), native.Uint64(table[32:])}
		switch elf.ProgType(native.Uint32(table)) {
		case elf.PT_LOAD:
			loaded = append(loaded, s)
		case elf.PT_DYNAMIC:
			dynamic = s
		case elf.PT_INTERP:
			linker = s
		default:
		}
	}
	name, err := part(f, linker.offset, linker.size, maxNameBytes)
	if err != nil {
		return err
	}
	n.linker = string(bytes.TrimRight(name, "\x00"))
	entries, err := part(f, dynamic.offset, dynamic.size, maxDynamic)
	if err != nil {
		return err
	}
	return n.readDynamic(f, loaded, entries)
}

func (n *needs) readDynamic(f io.ReaderAt, loaded []segment, entries []byte) error {
	native := binary.NativeEndian
	var names, paths []uint64
	var strings uint64 // an address
	for ; len(entries) >= dynamicBytes; entries = entries[dynamicBytes:] {
		value := native.Uint64(entries[8:])
		switch elf.DynTag(native.Uint64(entries)) {
		case elf.DT_NEEDED:
			names = append(names, value)
		case elf.DT_RPATH, elf.DT_RUNPATH:
			paths = append(paths, value)
		case elf.DT_STRTAB:
			strings = value
		default:
		}
	}
	for _, s := range loaded {
		if strings < s.address || strings-s.address >= s.size {
			continue
		}
		table := io.NewSectionReader(f, int64(s.offset+strings-s.address), int64(s.size-(strings-s.address)))
		var err error
		if n.names, err = namesAt(table, names); err == nil {
			n.runPaths, err = namesAt(table, paths)
		}
		return err
	}
	if len(names)+len(paths) > 0 {
		return errNoELF
	}
	return nil
}

// namesAt reads the names at some offsets of a table, each ended by a zero.
func namesAt(table io.ReaderAt, offsets []uint64) ([]string, error) {
	const most = 128 // of nearly all names
	var list []string
	for _, at := range offsets {
		for size := most; ; size *= 2 {
			name := make([]byte, size)
			read, err := table.ReadAt(name, int64(at))
			if end := bytes.IndexByte(name[:read], 0); end >= 0 {
				list = append(list, string(name[:end]))
				break
			}
			if err != nil || size >= maxNameBytes {
				return nil, errNoELF
			}
		}
	}
	return list, nil
}

// part reads some bytes of a file.
func part(f io.ReaderAt, offset, size, most uint64) ([]byte, error) {
	if size > most {
		return nil, errNoELF
	}
	b := make([]byte, size)
	if size == 0 {
		return b, nil
	}
	_, err := f.ReadAt(b, int64(offset))
	return b, err
}
