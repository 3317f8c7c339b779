package qemu

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// template is what the cache keeps of a machine that was saved when its first
// process was ready. Nothing of an image, a policy or a secret was ever in that
// machine.
type template struct {
	// Greeting is what the guest wrote to the agent's port.
	Greeting []byte
	// State is QEMU's, of CPUs and devices.
	State []byte
	// TSC is the frequency in kHz that the guest's kernel was told.
	TSC uint64
	// Extents are the parts of the guest's memory that it has used; their bytes follow.
	Extents []extent
}

type extent struct{ Offset, Length int64 }

const (
	// maxHeaderBytes bounds a template's file up to the memory.
	maxHeaderBytes = 4 << 20
	// maxExtents bounds how many parts memory is kept in; it is mostly a few hundred.
	maxExtents = 64 << 10
)

var errTemplate = errors.New("the saved machine is damaged")

// writeTo writes the template and its memory.
func (t *template) writeTo(w io.Writer, memory io.ReaderAt) error {
	if err := json.NewEncoder(w).Encode(t); err != nil {
		return err
	}
	for _, e := range t.Extents {
		if _, err := io.Copy(w, io.NewSectionReader(memory, e.Offset, e.Length)); err != nil {
			return err
		}
	}
	return nil
}

// readTemplate reads what writeTo wrote, up to the memory.
func readTemplate(in *bufio.Reader) (*template, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		if err == nil {
			break
		}
		if !errors.Is(err, bufio.ErrBufferFull) || len(line) > maxHeaderBytes {
			return nil, fmt.Errorf("%w: %w", errTemplate, err)
		}
	}
	var t template
	if err := json.Unmarshal(line, &t); err != nil {
		return nil, fmt.Errorf("%w: its header: %w", errTemplate, err)
	}
	if len(t.Extents) > maxExtents {
		return nil, fmt.Errorf("%w: memory in %d parts", errTemplate, len(t.Extents))
	}
	return &t, nil
}

// readMemory reads the memory that follows into a file as large as the machine's.
func (t *template) readMemory(in io.Reader, memory *os.File, size int64) error {
	for _, e := range t.Extents {
		if e.Offset < 0 || e.Length <= 0 || e.Length > size || e.Offset > size-e.Length {
			return fmt.Errorf("%w: memory of %d bytes at %d", errTemplate, e.Length, e.Offset)
		}
		if _, err := io.CopyN(io.NewOffsetWriter(memory, e.Offset), in, e.Length); err != nil {
			return fmt.Errorf("%w: %w", errTemplate, err)
		}
	}
	return nil
}
