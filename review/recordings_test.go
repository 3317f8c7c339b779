package review_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/msb-project/msb/capture"
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

// TestRecordingsLeaveNothingToLaterOnes: not the connections, nor the MAC that was leased, nor that a gateway said what it dropped.
// In the twin the same packets are of one recording.
func TestRecordingsLeaveNothingToLaterOnes(t *testing.T) {
	t.Parallel()
	const verdict = "msb flow=1 action=allow reason=rule"
	open := []sentFrame{
		{capture.FromGuest, segmentTo(9, 40000, capture.SYN, 999, ""), verdict}, {capture.ToGuest, accepts(9, 40000, 999), ""},
		{capture.FromGuest, segmentTo(9, 40000, capture.ACK, 1000, "first"), ""},
	}
	other := segmentTo(9, 40000, capture.ACK, 1005, "second")
	other[11]++ // its source MAC
	for name, c := range map[string]struct {
		first, second []sentFrame
		apart, one    string // flows and what the guard would throw away
	}{
		"a connection":     {open, []sentFrame{{capture.FromGuest, segmentTo(9, 40000, capture.ACK, 1005, "second"), ""}}, "2 map[]", "1 map[]"},
		"a leased MAC":     {open, []sentFrame{{capture.FromGuest, other, ""}}, "2 map[]", "1 map[source_mac:1]"},
		"a gateway's word": {open[:1], []sentFrame{{capture.FromGuest, withOption(segmentTo(9, 40001, capture.SYN, 999, "")), ""}}, "1 map[ip_options:1]", "1 map[ip_options:1]"},
	} {
		for names, want := range map[[2]string]string{{"a.pcapng", "b.pcapng"}: c.apart, {"a.pcapng.1", "a.pcapng"}: c.one} {
			dir, paths := t.TempDir(), []string(nil)
			for i, frames := range [][]sentFrame{c.first, c.second} {
				paths = append(paths, filepath.Join(dir, names[i]))
				if err := os.WriteFile(paths[i], captureOf(t, frames), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			r, err := review.Run(t.Context(), review.Options{Captures: paths, Policy: policy(t, "[egress]\ndefault = \"public\"\n")})
			if err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(r.Len(), " ", r.Guarded); got != want {
				t.Errorf("%s, %v: flows and guarded %s, want %s", name, names, got, want)
			}
		}
	}
}

// sentFrame is a frame of a capture with its comment.
type sentFrame struct {
	direction capture.Direction
	frame     []byte
	comment   string
}

// captureOf is a capture of frames.
func captureOf(t *testing.T, frames []sentFrame) []byte {
	t.Helper()
	l := newLink()
	for _, f := range frames {
		l.w.Packet(f.direction, f.frame, f.comment)
	}
	if err := l.w.Close(); err != nil {
		t.Fatal(err)
	}
	return l.out.Bytes()
}

// withOption is an IPv4 frame with four bytes of options, which the frame guard throws away.
func withOption(frame []byte) []byte {
	f := slices.Insert(bytes.Clone(frame), 34, 1, 1, 1, 0)
	f[14] = 0x46
	binary.BigEndian.PutUint16(f[16:], binary.BigEndian.Uint16(f[16:])+4)
	return f
}

// TestFilesAreReadOnce, however often they are named.
func TestFilesAreReadOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(directory, "ssh.pcapng")
	run := func(paths ...string) *review.Report {
		r, err := review.Run(t.Context(), review.Options{Captures: paths, Policy: policies.Default()})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if one, two := run(path), run(path, path); one.Packets == 0 || two.Packets != one.Packets || two.Len() != one.Len() {
		t.Errorf("%d packets in %d flows, want %d in %d", two.Packets, two.Len(), one.Packets, one.Len())
	}
}
