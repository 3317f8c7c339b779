package kernel

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

// errFormat says that a file is not a libkrunfw that this package can read.
var errFormat = errors.New("not a usable libkrunfw")

// maxImageBytes bounds what is read as a kernel: today's is 21.5 MB, and
// anything several times that is not the array that we look for.
const maxImageBytes = 256 << 20

// The two symbols of libkrunfw (github.com/containers/libkrunfw, bin2cbundle).
const (
	bundleSymbol = "KERNEL_BUNDLE"
	getterSymbol = "krunfw_get_kernel"
)

// kernelImage is a kernel as it lies in guest memory.
type kernelImage struct {
	// load is the physical address of the first byte of bytes.
	load uint64
	// entry is the physical address of the 64-bit entry point.
	entry uint64
	// pvhEntry is the physical address of the 32-bit PVH entry point.
	pvhEntry uint32
	// bytes is the kernel, BSS included.
	bytes []byte
}

// openImage reads the image out of the libkrunfw at path.
func openImage(path string) (*kernelImage, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	img, err := parse(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return img, nil
}

// parse reads the image out of a libkrunfw. Its errors wrap errFormat.
func parse(r io.ReaderAt) (*kernelImage, error) {
	lib, err := elf.NewFile(r)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errFormat, err)
	}
	if lib.Machine != elf.EM_X86_64 || lib.Class != elf.ELFCLASS64 {
		return nil, fmt.Errorf("%w: made for %v, only x86-64 is supported", errFormat, lib.Machine)
	}
	bundle, getter, err := symbols(lib)
	if err != nil {
		return nil, err
	}
	code, err := readAt(lib, getter.Value, getter.Size)
	if err != nil {
		return nil, err
	}
	load, entry, size, err := decodeGetter(code)
	if err != nil {
		return nil, err
	}
	// The array is a C string literal, so the symbol is one NUL longer.
	if size == 0 || size > bundle.Size || entry < load || entry >= load+size {
		return nil, fmt.Errorf("%w: kernel of %d bytes at %#x with entry %#x in an array of %d bytes",
			errFormat, size, load, entry, bundle.Size)
	}
	data, err := readAt(lib, bundle.Value, size)
	if err != nil {
		return nil, err
	}
	pvh, err := findPVHEntry(data)
	if err != nil {
		return nil, err
	}
	return &kernelImage{load: load, entry: entry, pvhEntry: pvh, bytes: data}, nil
}

func symbols(lib *elf.File) (bundle, getter elf.Symbol, err error) {
	syms, err := lib.DynamicSymbols()
	if err != nil {
		return bundle, getter, fmt.Errorf("%w: %w", errFormat, err)
	}
	for _, s := range syms {
		switch s.Name {
		case bundleSymbol:
			bundle = s
		case getterSymbol:
			getter = s
		}
	}
	const maxGetterBytes = 4096
	switch {
	case bundle.Size == 0 || bundle.Size > maxImageBytes:
		return bundle, getter, fmt.Errorf("%w: symbol %s has %d bytes", errFormat, bundleSymbol, bundle.Size)
	case getter.Size == 0 || getter.Size > maxGetterBytes:
		return bundle, getter, fmt.Errorf("%w: function %s has %d bytes", errFormat, getterSymbol, getter.Size)
	}
	return bundle, getter, nil
}

// readAt reads n bytes at a virtual address of the library.
func readAt(lib *elf.File, addr, n uint64) ([]byte, error) {
	for _, p := range lib.Progs {
		if p.Type != elf.PT_LOAD || addr < p.Vaddr || addr-p.Vaddr > p.Filesz || n > p.Filesz-(addr-p.Vaddr) {
			continue
		}
		// Read through a limit rather than make([]byte, n): a header that lies
		// about the size must not make us allocate it.
		var buf bytes.Buffer
		section := io.NewSectionReader(p, int64(addr-p.Vaddr), int64(n))
		if _, err := io.Copy(&buf, section); err != nil {
			return nil, fmt.Errorf("%w: %w", errFormat, err)
		}
		if uint64(buf.Len()) != n {
			return nil, fmt.Errorf("%w: cut short at %d of %d bytes", errFormat, buf.Len(), n)
		}
		return buf.Bytes(), nil
	}
	return nil, fmt.Errorf("%w: address %#x is in no segment", errFormat, addr)
}

// decodeGetter reads the three constants that krunfw_get_kernel stores through
// its three pointer arguments (load address, entry address, size), each by
//
//	48 c7 /0 imm32    movq $imm32, (%reg)
//
// Without optimisation the register is %rax each time and the stores come in
// the order of the arguments; with it they go through %rdi, %rsi and %rdx in
// any order.
func decodeGetter(code []byte) (load, entry, size uint64, err error) {
	const insnBytes = 7
	const rdx, rsi, rdi = 2, 6, 7 // encodings of the argument registers
	byArgument := map[byte]int{rdi: 0, rsi: 1, rdx: 2}
	var values [3]uint64
	var found int
	for i := 0; i+insnBytes <= len(code) && found < len(values); i++ {
		modrm := code[i+2]
		if code[i] != 0x48 || code[i+1] != 0xc7 || modrm > 7 || modrm == 4 || modrm == 5 {
			continue // modrm 4 and 5 mean other addressing modes
		}
		slot, ok := byArgument[modrm]
		if !ok {
			slot = found
		}
		values[slot] = uint64(binary.LittleEndian.Uint32(code[i+3:]))
		found++
		i += insnBytes - 1
	}
	if found != len(values) {
		return 0, 0, 0, fmt.Errorf("%w: %s stores %d constants, want 3", errFormat, getterSymbol, found)
	}
	return values[0], values[1], values[2], nil
}
