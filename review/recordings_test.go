package review_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/review"
)

// TestRecordingsAreJudgedByThemselves: a name that one sandbox was given allows nothing to another, whose connection
// may have the same ports. Parts that rotation made are one recording.
func TestRecordingsAreJudgedByThemselves(t *testing.T) {
	t.Parallel()
	file, err := os.ReadFile(filepath.Join(directory, "tls-5-records.pcapng"))
	if err != nil {
		t.Fatal(err)
	}
	lookup, rest := cutAfterPackets(t, file, 2)
	p, err := policies.Parse("t.toml", []byte("version = 1\n[[egress.allow]]\nhosts = [\"good.example\"]\nports = [443]\nprotocol = \"tls\"\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	judged := func(first, second string) (allowed, denied int) {
		t.Helper()
		dir := t.TempDir()
		paths := []string{filepath.Join(dir, first), filepath.Join(dir, second)}
		for i, b := range [][]byte{lookup, rest} {
			if err := errors.Join(os.MkdirAll(filepath.Dir(paths[i]), 0o700), os.WriteFile(paths[i], b, 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		r, err := review.Run(t.Context(), review.Options{Captures: []string{paths[1], paths[0]}, Policy: p})
		if err != nil {
			t.Fatal(err)
		}
		for f := range r.Flows() {
			if f.Proto != "tcp" {
				continue
			}
			if f.Verdict.Action == "allow" {
				allowed++
			} else {
				denied++
			}
		}
		return allowed, denied
	}
	for names, one := range map[[2]string]bool{
		{"a.pcapng", "b.pcapng"}:                                           false,
		{"a.pcapng.1", "a.pcapng"}:                                         true,
		{"a.pcapng.10", "a.pcapng.9"}:                                      true,
		{"a.pcapng.1", "b.pcapng.1"}:                                       false,
		{"1/a.pcapng", "2/a.pcapng"}:                                       false,
		{"a_00001_20260102030405.pcapng", "a_00002_20260102030406.pcapng"}: true,
		{"a_00001_20260102030405.pcapng", "b_00002_20260102030406.pcapng"}: false,
	} {
		allowed, denied := judged(names[0], names[1])
		if one && (allowed != 1 || denied != 0) || !one && (allowed != 0 || denied != 1) {
			t.Errorf("%v: %d connections allowed, %d not; one recording: %v", names, allowed, denied, one)
		}
	}
}

// cutAfterPackets takes a pcapng capture of one section apart: both parts have its head.
func cutAfterPackets(t *testing.T, file []byte, packets int) (first, rest []byte) {
	t.Helper()
	const enhanced = 6
	head := -1
	for at := 0; at+8 <= len(file); {
		kind, size := binary.LittleEndian.Uint32(file[at:]), int(binary.LittleEndian.Uint32(file[at+4:]))
		if kind == enhanced && head < 0 {
			head = at
		}
		if kind == enhanced && packets == 0 {
			return file[:at], append(bytes.Clone(file[:head]), file[at:]...)
		}
		if kind == enhanced {
			packets--
		}
		at += size
	}
	t.Fatal("the capture has too few packets")
	return nil, nil
}
