//go:build linux

package workload

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// program is the head of a program of 64 bits with an interpreter at the given place.
func program(interpreter string, headers uint16, at, size uint64) string {
	b := make([]byte, 120)
	copy(b, "\x7fELF\x02\x01")
	binary.LittleEndian.PutUint64(b[32:], 64)
	binary.LittleEndian.PutUint16(b[56:], headers)
	binary.LittleEndian.PutUint32(b[64:], 3)
	binary.LittleEndian.PutUint64(b[72:], at)
	binary.LittleEndian.PutUint64(b[96:], size)
	return string(b) + interpreter + "\x00"
}

func TestInterpretersAreReadLikeTheKernel(t *testing.T) {
	dir := t.TempDir()
	for i, c := range []struct{ text, want, err string }{
		{"#!/bin/sh -e\n", "/bin/sh", ""},
		{"#! \t/usr/bin/env\tx", "/usr/bin/env", ""},
		{"#!sh\n", "", "no program"},
		{"#!\n", "", "no program"},
		{"text", "", "no program"},
		{"", "", "no program"},
		{"\x7fELF\x01\x01" + strings.Repeat("\x00", 300), "", "no program"}, // of 32 bits
		{program("/lib/ld.so", 1, 120, 11), "/lib/ld.so", ""},
		{program("/lib/ld.so", 0, 120, 11), "", ""}, // linked statically
		{program("/lib/ld.so", 1, 120, 1<<63), "", "no program"},
		{program("/lib/ld.so", 1, 1<<63, 11), "", "no program"},
		{program("", 65535, 120, 0), "", ""},
		{program("/lib/ld.so", 1, 120, 11)[:90], "", "no program"},
	} {
		path := filepath.Join(dir, "f")
		if err := os.WriteFile(path, []byte(c.text), 0o755); err != nil {
			t.Fatal(err)
		}
		got, err := interpreter(path)
		if got != c.want || (err != nil) != (c.err != "") {
			t.Errorf("%d, %.20q: got %q, %v", i, c.text, got, err)
		}
	}
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := interpreter(fifo); err == nil {
		t.Error("a FIFO is an interpreter")
	}
}
