package kernel

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// unoptimised is krunfw_get_kernel as libkrunfw 5.6.1 has it.
var unoptimised = []byte{
	0x55, 0x48, 0x89, 0xe5, 0x48, 0x89, 0x7d, 0xf8, 0x48, 0x89, 0x75, 0xf0, 0x48, 0x89, 0x55, 0xe8,
	0x48, 0x8b, 0x45, 0xf8, 0x48, 0xc7, 0x00, 0x00, 0x00, 0x00, 0x01,
	0x48, 0x8b, 0x45, 0xf0, 0x48, 0xc7, 0x00, 0x23, 0x01, 0x00, 0x01,
	0x48, 0x8b, 0x45, 0xe8, 0x48, 0xc7, 0x00, 0x00, 0x00, 0x49, 0x01,
	0x48, 0x8b, 0x05, 0x97, 0x2e, 0x00, 0x00, 0x5d, 0xc3,
}

// optimised stores through the argument registers, the size first.
var optimised = []byte{
	0x48, 0xc7, 0x02, 0x00, 0x00, 0x49, 0x01, // movq $0x1490000, (%rdx)
	0x48, 0xc7, 0x07, 0x00, 0x00, 0x00, 0x01, // movq $0x1000000, (%rdi)
	0x48, 0xc7, 0x06, 0x23, 0x01, 0x00, 0x01, // movq $0x1000123, (%rsi)
	0xc3,
}

func TestDecodeGetter(t *testing.T) {
	t.Parallel()
	for name, code := range map[string][]byte{"unoptimised": unoptimised, "optimised": optimised} {
		load, entry, size, err := decodeGetter(code)
		if err != nil || load != 0x1000000 || entry != 0x1000123 || size != 0x1490000 {
			t.Errorf("%s: %#x %#x %#x %v", name, load, entry, size, err)
		}
	}
	for n := range len(optimised) - 1 {
		if _, _, _, err := decodeGetter(optimised[:n]); !errors.Is(err, errFormat) {
			t.Errorf("%d bytes of code: %v, want ErrFormat", n, err)
		}
	}
}

// image is a kernel of one page with a PVH note in it.
func image() *kernelImage {
	data := make([]byte, 4096)
	copy(data[512:], noteHeader(8))
	binary.LittleEndian.PutUint64(data[512+len(noteHeader(8)):], 0x1000040)
	return &kernelImage{load: 0x1000000, entry: 0x1000123, pvhEntry: 0x1000040, bytes: data}
}

func TestBothLoadersReadOurELF(t *testing.T) {
	t.Parallel()
	img := image()
	var buf bytes.Buffer
	if err := img.writeELF(&buf); err != nil {
		t.Fatal(err)
	}
	f, err := elf.NewFile(bytes.NewReader(buf.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	if f.Type != elf.ET_EXEC || f.Machine != elf.EM_X86_64 || f.Entry != img.entry || len(f.Progs) != 2 {
		t.Fatalf("header %+v", f.FileHeader)
	}
	load, note := f.Progs[0], f.Progs[1]
	if load.Type != elf.PT_LOAD || load.Paddr != img.load || load.Filesz != 4096 || load.Off%4096 != 0 {
		t.Errorf("segment %+v", load.ProgHeader)
	}
	got := make([]byte, load.Filesz)
	if _, err := load.ReadAt(got, 0); err != nil || !bytes.Equal(got, img.bytes) {
		t.Errorf("the segment is not the kernel (%v)", err)
	}
	desc := make([]byte, note.Filesz)
	if _, err := note.ReadAt(desc, 0); err != nil || note.Type != elf.PT_NOTE {
		t.Fatalf("note %+v: %v", note.ProgHeader, err)
	}
	if entry, err := findPVHEntry(desc); err != nil || entry != img.pvhEntry {
		t.Errorf("PVH entry %#x (%v), want %#x", entry, err, img.pvhEntry)
	}
}

func TestFindPVHEntryWithoutNote(t *testing.T) {
	t.Parallel()
	for _, data := range [][]byte{nil, make([]byte, 100), noteHeader(8), append(noteHeader(4), 1, 2)} {
		if _, err := findPVHEntry(data); !errors.Is(err, errFormat) {
			t.Errorf("%x: %v, want ErrFormat", data, err)
		}
	}
}

func TestEnsureOnWhatIsNoLibrary(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "libkrunfw.so.5")
	if err := os.WriteFile(file, []byte("\x7fELF but no more"), 0o600); err != nil {
		t.Fatal(err)
	}
	cache := filepath.Join(dir, "cache")
	if _, err := Ensure(cache, file); !errors.Is(err, errFormat) {
		t.Errorf("ensure: %v, want ErrFormat", err)
	}
	if _, err := Ensure(cache, filepath.Join(dir, "missing")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("ensure: %v, want ErrNotExist", err)
	}
	if left, err := filepath.Glob(filepath.Join(cache, "*")); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

func TestLookupTakesOnlyAKernelsName(t *testing.T) {
	t.Parallel()
	index := filepath.Join(t.TempDir(), "x.index")
	name := "kernel-" + strings.Repeat("0a", 32) + ".elf"
	for text, want := range map[string]bool{
		name + "\n": true, name + " 5\n": true,
		name: false, "": false, "kernel-0a.elf\n": false, "../" + name + "\n": false, name + "/x\n": false,
	} {
		if err := os.WriteFile(index, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, got := lookup(index); got != want {
			t.Errorf("index %q: %v, want %v", text, got, want)
		}
	}
}

// FuzzParse: a library of any bytes is refused or read, never a crash or an
// allocation that its own size does not justify.
func FuzzParse(f *testing.F) {
	var buf bytes.Buffer
	if err := image().writeELF(&buf); err != nil {
		f.Fatal(err)
	}
	f.Add(buf.Bytes())
	f.Add([]byte("\x7fELF"))
	f.Fuzz(func(t *testing.T, data []byte) {
		img, err := parse(bytes.NewReader(data))
		if err != nil {
			if !errors.Is(err, errFormat) {
				t.Errorf("%v does not wrap ErrFormat", err)
			}
			return
		}
		if len(img.bytes) > len(data) {
			t.Errorf("a kernel of %d bytes out of a file of %d", len(img.bytes), len(data))
		}
	})
}
