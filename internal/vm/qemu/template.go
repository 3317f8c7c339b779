package qemu

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// template is what the cache keeps of a machine that was saved when its first
// process was ready. Nothing of an image, a policy or a secret was ever in that
// machine.
type template struct {
	// Greeting is what the guest wrote to the agent's port.
	Greeting []byte
	// State is QEMU's, of CPUs and devices; its bytes follow.
	State []byte `json:"-"`
	// StateBytes is its length in the file.
	StateBytes int64
	// TSC is the frequency in kHz that the guest's kernel was told.
	TSC uint64
	// Extents are the parts of the guest's memory that it has used; their bytes follow the state's.
	Extents []extent
	// memoryAt is where those bytes begin in the file.
	memoryAt int64
}

type extent struct{ Offset, Length int64 }

const (
	// maxHeaderBytes bounds the first line of a template's file.
	maxHeaderBytes = 4 << 20
	// maxStateBytes bounds the state of a machine's CPUs and devices, which has
	// some 50 kB.
	maxStateBytes = 1 << 20
	// maxExtents bounds how many parts memory is kept in; it is mostly a few hundred.
	maxExtents = 64 << 10
)

var errTemplate = errors.New("the saved machine is damaged")

// writeTo writes the template and its memory.
func (t *template) writeTo(w io.Writer, memory io.ReaderAt) error {
	t.StateBytes = int64(len(t.State))
	if err := json.NewEncoder(w).Encode(t); err != nil {
		return err
	}
	if _, err := w.Write(t.State); err != nil {
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
	if t.StateBytes < 0 || t.StateBytes > maxStateBytes {
		return nil, fmt.Errorf("%w: a state of %d bytes", errTemplate, t.StateBytes)
	}
	t.State = make([]byte, t.StateBytes)
	if _, err := io.ReadFull(in, t.State); err != nil {
		return nil, fmt.Errorf("%w: its state: %w", errTemplate, err)
	}
	t.memoryAt = int64(len(line)) + t.StateBytes
	return &t, nil
}
