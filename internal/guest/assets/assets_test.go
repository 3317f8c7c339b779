package assets

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
)

func TestPartsAreCompleteOrMissing(t *testing.T) {
	t.Parallel()
	for _, p := range []Part{AgentRoot(), Builtin()} {
		digest, err := p.Digest()
		r, openErr := p.Open()
		if err != nil || openErr != nil {
			if !errors.Is(err, ErrNotBuilt) || !errors.Is(openErr, ErrNotBuilt) {
				t.Errorf("%s: %v, %v", p.name, err, openErr)
			}
			continue
		}
		n, err := io.Copy(io.Discard, r)
		if err != nil || n < 1<<20 {
			t.Errorf("%s: %d bytes, %v", p.name, n, err)
		}
		b, err := files.ReadFile("bin/" + p.name)
		if sum := sha256.Sum256(b); err != nil || hex.EncodeToString(sum[:]) != digest {
			t.Errorf("%s: digest %s is not that of the file: run make build (%v)", p.name, digest, err)
		}
	}
	if r, err := VMM().Packed(); err == nil {
		magic := make([]byte, 4)
		if _, err := io.ReadFull(r, magic); err != nil || string(magic) != "\x7fELF" {
			t.Errorf("%s begins with %q, %v", VMM().Name(), magic, err)
		}
	} else if !errors.Is(err, ErrNotBuilt) {
		t.Error(err)
	}
	if _, err := (Part{"no-such"}).Open(); !errors.Is(err, ErrNotBuilt) {
		t.Errorf("got %v", err)
	}
}

// TestTheVMMsProgramStandsBeforeIoctl looks for the symbol by which libkrun's calls of KVM come by package krun.
func TestTheVMMsProgramStandsBeforeIoctl(t *testing.T) {
	t.Parallel()
	packed, err := VMM().Packed()
	if errors.Is(err, ErrNotBuilt) || !strings.HasSuffix(VMM().Name(), "amd64-cgo") {
		t.Skip("no program with libkrun in it")
	}
	if err != nil {
		t.Fatal(err)
	}
	program, err := io.ReadAll(packed)
	if err != nil {
		t.Fatal(err)
	}
	file, err := elf.NewFile(bytes.NewReader(program))
	if err != nil {
		t.Fatal(err)
	}
	symbols, err := file.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(symbols, func(s elf.Symbol) bool { return s.Name == "ioctl" && s.Section != elf.SHN_UNDEF }) {
		t.Error("ioctl is not among its dynamic symbols")
	}
}
