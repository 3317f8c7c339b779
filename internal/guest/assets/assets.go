package assets

import (
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"runtime"
)

//go:embed all:bin
var files embed.FS

// ErrNotBuilt means that this msb was built without the guest's parts.
var ErrNotBuilt = errors.New("built without guest parts: run make build")

// Part is one embedded file.
type Part struct{ name string }

// AgentRoot is the agent's root disk: a raw ext4 image, to be attached first
// and read-only, with the agent at /init.
func AgentRoot() Part { return Part{"agentd-" + arch() + ".ext4.gz"} }

// Builtin is the root of the image called "builtin": a tar stream.
func Builtin() Part { return Part{"builtin-" + arch() + ".tar.gz"} }

// VMM is the program that VMMs start in, as the kernel executes it: see vm/vmm. It is built with cgo or without, as this
// program was, so that it has libkrun's backend where this program has it.
func VMM() Part { return Part{"vmm-" + arch() + "-" + linkage} }

// arch is the guest's machine, which is the host's: nothing is emulated across
// architectures.
func arch() string { return runtime.GOARCH }

// Name says which part it is.
func (p Part) Name() string { return p.name }

// Packed returns the part as it is embedded: what Digest is of. The caller closes it.
func (p Part) Packed() (io.ReadCloser, error) {
	f, err := files.Open("bin/" + p.name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.name, ErrNotBuilt)
	}
	return f, nil
}

// Open returns the part's content, uncompressed. The caller closes it.
func (p Part) Open() (io.ReadCloser, error) {
	f, err := p.Packed()
	if err != nil {
		return nil, err
	}
	z, err := gzip.NewReader(f)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", p.name, err)
	}
	return z, nil
}

// Digest is the SHA-256 of the part as embedded, in hex, as it was taken when
// the part was made: a key for caches of what is made from it.
func (p Part) Digest() (string, error) {
	b, err := files.ReadFile("bin/" + p.name + ".sha256")
	if err != nil || len(b) != hex.EncodedLen(sha256.Size) {
		return "", fmt.Errorf("%s: %w", p.name, ErrNotBuilt)
	}
	return string(b), nil
}
