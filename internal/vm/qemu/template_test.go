//go:build linux

package qemu

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/msb-project/msb/internal/vm"
)

// TestTemplatesKeepWhatWasWritten saves memory with holes and zeros in it, and reads it again.
func TestTemplatesKeepWhatWasWritten(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	memory := newTestMemory(t, size)
	for at, text := range map[int64]string{0: "first", 300_000: strings.Repeat("x", 40_000), size - 4: "last"} {
		if _, err := memory.WriteAt([]byte(text), at); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := memory.WriteAt(make([]byte, 100_000), 600_000); err != nil { // written, and still zeros
		t.Fatal(err)
	}
	parts, err := used(memory, size)
	if err != nil {
		t.Fatal(err)
	}
	kept := int64(0)
	for _, p := range parts {
		kept += p.Length
	}
	if kept > 100_000 {
		t.Errorf("%d bytes are kept in %v: zeros too", kept, parts)
	}
	want := &template{Greeting: []byte("hello\n"), State: []byte{0, 1, '\n', 255}, TSC: 5, Extents: parts}
	file, err := os.Create(filepath.Join(t.TempDir(), "template"))
	if err == nil {
		defer file.Close()
		err = want.writeTo(file, memory)
	}
	if err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		t.Fatal(err)
	}
	got, err := readTemplate(bufio.NewReaderSize(file, 16))
	if err != nil || !bytes.Equal(got.Greeting, want.Greeting) || !bytes.Equal(got.State, want.State) || got.TSC != 5 {
		t.Fatalf("%+v, %v", got, err)
	}
	again := newTestMemory(t, size)
	if err := got.readMemory(file, again, size); err != nil {
		t.Fatal(err)
	}
	a, errA := io.ReadAll(io.NewSectionReader(memory, 0, size))
	b, errB := io.ReadAll(io.NewSectionReader(again, 0, size))
	if err := errors.Join(errA, errB); err != nil || !bytes.Equal(a, b) {
		t.Errorf("the memory differs (%v)", err)
	}
}

func newTestMemory(t *testing.T, size int64) *os.File {
	t.Helper()
	f, err := newMemory("test", size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// TestDamagedTemplatesAreErrors reads files that nobody wrote so.
func TestDamagedTemplatesAreErrors(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	for name, text := range map[string]string{
		"empty":            "",
		"no line":          strings.Repeat("x", maxHeaderBytes+100),
		"no JSON":          "msb\n",
		"state cut":        `{"StateBytes":4}` + "\n123",
		"large state":      `{"StateBytes":1048577}` + "\n" + strings.Repeat("x", 1<<20+1),
		"negative state":   `{"StateBytes":-1}` + "\n123",
		"memory cut":       `{"Extents":[{"Offset":0,"Length":10}]}` + "\n123",
		"memory missing":   `{"Extents":[{"Offset":0,"Length":10}]}` + "\n",
		"before the start": `{"Extents":[{"Offset":-1,"Length":1}]}` + "\n1",
		"behind the end":   `{"Extents":[{"Offset":1048576,"Length":1}]}` + "\n1",
		"over the end":     `{"Extents":[{"Offset":1048575,"Length":2}]}` + "\n12",
		"too long":         `{"Extents":[{"Offset":0,"Length":1048577}]}` + "\n" + strings.Repeat("x", size+1),
		"overflow":         `{"Extents":[{"Offset":9223372036854775807,"Length":1048576}]}` + "\n12",
		"no length":        `{"Extents":[{"Offset":0,"Length":0}]}` + "\n",
		"too many parts":   `{"Extents":[` + strings.Repeat(`{"Offset":0,"Length":1},`, maxExtents) + `{"Offset":0,"Length":1}]}` + "\n" + strings.Repeat("x", maxExtents+1),
	} {
		path := filepath.Join(t.TempDir(), "template")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		got, err := readTemplate(bufio.NewReader(file))
		if err == nil {
			err = got.readMemory(file, newTestMemory(t, size), size)
		}
		_ = file.Close()
		if !errors.Is(err, errTemplate) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestI18_SealedMemoryStaysAsItIs writes to memory that was sealed, and to memory that wasn't.
func TestI18_SealedMemoryStaysAsItIs(t *testing.T) {
	t.Parallel()
	f := newTestMemory(t, 8192)
	if _, err := f.WriteAt([]byte("a"), 0); err != nil {
		t.Fatal(err)
	}
	if err := seal(f); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("b"), 0); err == nil {
		t.Error("sealed memory was written to")
	}
	for _, size := range []int64{0, 16384} {
		if f.Truncate(size) == nil {
			t.Errorf("sealed memory was made %d bytes long", size)
		}
	}
}

// TestOldTemplatesGo keeps the newest of a cache, and nothing else is touched.
func TestOldTemplatesGo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := New(Config{CacheDir: dir})
	begin := time.Now().Add(-time.Hour)
	var names []string
	for i := range maxTemplates + 2 {
		name := templatePrefix + strings.Repeat(string(rune('a'+i)), 24)
		names = append(names, name)
		for _, file := range []string{name, name + ".sum"} {
			path := filepath.Join(dir, file)
			at := begin.Add(time.Duration(i) * time.Minute)
			if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Chtimes(path, at, at)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "kernel"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b.dropOld(filepath.Join(dir, names[0])) // the oldest is the one in use
	want := append([]string{"kernel", names[0]}, names[3:]...)
	var left []string
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if filepath.Ext(e.Name()) == "" {
			left = append(left, e.Name())
		} else if !slices.Contains(want, strings.TrimSuffix(e.Name(), ".sum")) {
			t.Errorf("%s is left", e.Name())
		}
	}
	if !slices.Equal(left, want) {
		t.Errorf("left %v, want %v", left, want)
	}
}

// TestClocksAgreeWithinTheirError: a saved machine is of one clock.
func TestClocksAgreeWithinTheirError(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b uint64
		want bool
	}{{2_000_000, 2_000_000, true}, {2_000_000, 2_000_400, true}, {2_000_400, 2_000_000, true}, {2_000_000, 2_000_500, false}, {2_000_000, 0, false}, {0, 0, true}} {
		if got := near(c.a, c.b); got != c.want {
			t.Errorf("%d and %d: %v", c.a, c.b, got)
		}
	}
}

// TestCopiesHaveNoOtherDevices compares the command lines of a machine that is saved and of its copy.
func TestCopiesHaveNoOtherDevices(t *testing.T) {
	t.Parallel()
	spec := &vm.Spec{CPUs: 1, MemoryMiB: 256, Disks: []vm.Disk{{Path: "/a", ReadOnly: true, ID: "a"}, {Path: "/b", ID: "b"}}}
	devices := func(fd fds) []string {
		var list []string
		argv := args("qemu", "kernel", "cmdline", spec, emulated, fd)
		for i, a := range argv {
			if a == "-device" || a == "-M" || a == "-accel" || a == "-smp" || a == "-m" {
				list = append(list, argv[i+1])
			}
		}
		return list
	}
	saved, copied := devices(fds{memory: 8, monitor: 9}), devices(fds{memory: 8, monitor: 9, state: 10})
	if !slices.Equal(saved, copied) {
		t.Errorf("saved %q\ncopied %q", saved, copied)
	}
	argv := strings.Join(args("qemu", "kernel", "cmdline", spec, emulated, fds{memory: 8, monitor: 9, state: 10}), " ")
	if !strings.Contains(argv, "share=off") || strings.Contains(argv, "share=on") {
		t.Errorf("a copy shares its memory with others: %s", argv)
	}
}
