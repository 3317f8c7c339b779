package ext4disk

import (
	"archive/tar"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// diskOf writes a tar stream into a disk and checks that.
func diskOf(t testing.TB, size Size, produce func(*tar.Writer)) string {
	t.Helper()
	disk := filepath.Join(t.TempDir(), "disk.ext4")
	f, err := os.Create(disk)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	err = Write(f, size, func(w io.Writer) error {
		tw := tar.NewWriter(w)
		produce(tw)
		return tw.Close()
	})
	if err != nil {
		t.Fatal(err)
	}
	return disk
}

func put(t testing.TB, tw *tar.Writer, hdr tar.Header, body string) {
	t.Helper()
	hdr.Format, hdr.ModTime, hdr.Size = tar.FormatPAX, time.Unix(1_700_000_000, 5), int64(len(body))
	if err := tw.WriteHeader(&hdr); err != nil {
		t.Error(err)
	}
	if _, err := io.WriteString(tw, body); err != nil {
		t.Error(err)
	}
}

func TestWriteKeepsWhatAnImageHolds(t *testing.T) {
	t.Parallel()
	disk := diskOf(t, Size{}, func(tw *tar.Writer) {
		put(t, tw, tar.Header{Typeflag: tar.TypeDir, Name: "./", Mode: 0o755}, "")
		put(t, tw, tar.Header{Typeflag: tar.TypeDir, Name: "d/", Mode: 0o1777, Uid: 70000, Gid: 5}, "")
		put(t, tw, tar.Header{Name: "d/su", Mode: 0o4755, PAXRecords: map[string]string{"SCHILY.xattr.security.capability": "\x01\x00\x00\x02\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"}}, "hello")
		put(t, tw, tar.Header{Typeflag: tar.TypeLink, Name: "hard", Linkname: "d/su"}, "")
		put(t, tw, tar.Header{Typeflag: tar.TypeSymlink, Name: "soft", Linkname: "/etc/" + strings.Repeat("x", 100)}, "")
		put(t, tw, tar.Header{Typeflag: tar.TypeChar, Name: "null", Mode: 0o666, Devmajor: 1, Devminor: 3}, "")
		put(t, tw, tar.Header{Typeflag: tar.TypeBlock, Name: "big", Mode: 0o600, Devmajor: 259, Devminor: 70000}, "")
		put(t, tw, tar.Header{Typeflag: tar.TypeFifo, Name: "fifo", Mode: 0o600}, "")
	})
	fsck(t, disk)
	for command, wants := range map[string][]string{
		"stat d":       {"Mode:  01777", "User: 70000", "Group:     5"},
		"stat d/su":    {"Mode:  04755", "Links: 2", "Size: 5"},
		"stat hard":    {"Mode:  04755", "Links: 2"},
		"stat soft":    {"Type: symlink", "Size: 105"},
		"stat null":    {"Type: character special", "01:03"},
		"stat big":     {"Type: block special", "259:70000"},
		"stat fifo":    {"Type: FIFO"},
		"ea_list d/su": {"security.capability"},
		"cat hard":     {"hello"},
	} {
		out := debugfs(t, disk, false, command)
		for _, want := range wants {
			if !strings.Contains(out, want) {
				t.Errorf("%s: no %q in\n%s", command, want, out)
			}
		}
	}
}

// The kernel searches an attribute block in order and stops at the first entry
// past the one it looks for.
func TestWriteSortsAttributeBlocks(t *testing.T) {
	t.Parallel()
	// More than twelve in the block: up to there insertion sort happens to be right.
	big := strings.Repeat("v", 60)
	attrs := map[string]string{}
	for i := range 36 {
		space := []string{"user", "security", "trusted"}[i%3]
		attrs[fmt.Sprintf("SCHILY.xattr.%s.%s%d", space, strings.Repeat("xyz"[i*7%3:i*7%3+1], 1+i*5%7), i)] = big
	}
	disk := diskOf(t, Size{}, func(tw *tar.Writer) {
		put(t, tw, tar.Header{Typeflag: tar.TypeDir, Name: "./", Mode: 0o755}, "")
		put(t, tw, tar.Header{Name: "f", Mode: 0o644, PAXRecords: attrs}, "hello")
	})
	fsck(t, disk)
	b, err := os.ReadFile(disk)
	if err != nil {
		t.Fatal(err)
	}
	magic := binary.LittleEndian.AppendUint32(nil, xattrMagic)
	blocks := 0
	for at := 0; at+blockSize <= len(b); at += blockSize {
		block := b[at : at+blockSize]
		if !bytes.HasPrefix(block, magic) {
			continue
		}
		blocks++
		var last []byte
		count := 0
		for off := xattrHeaderBytes; binary.LittleEndian.Uint32(block[off:]) != 0; count++ {
			entry := block[off:]
			if last != nil && compareXattrs(last, entry) >= 0 {
				t.Errorf("entry %d is out of order", count)
			}
			last = entry
			off += xattrEntryFixed + (int(entry[xattrEntryNameLen])+3)&^3
		}
		if count != len(attrs)-1 { // one is in the inode
			t.Errorf("%d attributes in the block, want %d", count, len(attrs)-1)
		}
	}
	if blocks != 1 {
		t.Errorf("%d attribute blocks, want 1", blocks)
	}
	for name := range attrs {
		name = strings.TrimPrefix(name, "SCHILY.xattr.")
		if out := debugfs(t, disk, false, "ea_get f "+name); !strings.Contains(out, big) {
			t.Errorf("%s is lost: %q", name, out)
		}
	}
}

func TestWriteLargeFilesAndDirectories(t *testing.T) {
	t.Parallel()
	const large, names = 700 << 20, 20000 // more than 4 extents; a directory of about 100 blocks
	disk := diskOf(t, Size{Bytes: large, Names: names}, func(tw *tar.Writer) {
		put(t, tw, tar.Header{Typeflag: tar.TypeDir, Name: "./", Mode: 0o755}, "")
		if err := tw.WriteHeader(&tar.Header{Name: "large", Mode: 0o644, Size: large}); err != nil {
			t.Error(err)
		}
		_, _ = io.CopyN(tw, zeroReader{}, large-4)
		_, _ = io.WriteString(tw, "tail")
		put(t, tw, tar.Header{Typeflag: tar.TypeDir, Name: "d/", Mode: 0o755}, "")
		for i := range names {
			put(t, tw, tar.Header{Name: fmt.Sprintf("d/a-name-that-takes-space-%d", i), Mode: 0o644}, "")
		}
	})
	fsck(t, disk)
	st, err := os.Stat(disk)
	if err != nil {
		t.Fatal(err)
	}
	if got := st.Sys().(*syscall.Stat_t).Blocks * 512; st.Size() < large || got > 64<<20 {
		t.Errorf("%d bytes, %d of them on the disk; want zeros to be holes", st.Size(), got)
	}
	if out := debugfs(t, disk, false, "stat d/a-name-that-takes-space-19999"); !strings.Contains(out, "Type: regular") {
		t.Errorf("the last name is lost: %s", out)
	}
	var block int64
	if _, err := fmt.Sscan(debugfs(t, disk, false, fmt.Sprintf("bmap large %d", large/blockSize-1)), &block); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(disk)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	tail := make([]byte, 4)
	if _, err := f.ReadAt(tail, (block+1)*blockSize-4); err != nil || string(tail) != "tail" {
		t.Errorf("the last block of the large file ends in %q: %v", tail, err)
	}
}

type zeroReader struct{}

func (zeroReader) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestI12_WriteReportsTheProducersError(t *testing.T) {
	t.Parallel()
	f, err := os.Create(filepath.Join(t.TempDir(), "disk"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	mine := errors.New("mine")
	if err := Write(f, Size{}, func(io.Writer) error { return mine }); !errors.Is(err, mine) {
		t.Errorf("got %v, want the producer's error", err)
	}
}

func TestI12_CheckFindsDamage(t *testing.T) {
	t.Parallel()
	disk := diskOf(t, Size{}, func(*tar.Writer) {})
	fsck(t, disk)
	st, err := os.Stat(disk)
	if err != nil {
		t.Fatal(err)
	}
	if err := Check(disk, st.Size()); err != nil {
		t.Errorf("a whole disk: %v", err)
	}
	if err := Check(disk, st.Size()+1); !errors.Is(err, errDamaged) {
		t.Errorf("a short disk: %v, want ErrDamaged", err)
	}
	for padded, want := range map[int64]error{Padded(st.Size()): nil, Padded(st.Size()) - 1: errDamaged, 2 * Padded(st.Size()): errDamaged} {
		if err := os.Truncate(disk, padded); err != nil {
			t.Fatal(err)
		}
		if err := Check(disk, st.Size()); !errors.Is(err, want) {
			t.Errorf("padded to %d bytes: %v, want %v", padded, err, want)
		}
	}
	fsck(t, disk)
	if err := os.WriteFile(disk, make([]byte, st.Size()), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Check(disk, st.Size()); !errors.Is(err, errDamaged) {
		t.Errorf("an overwritten disk: %v, want ErrDamaged", err)
	}
	if err := Check(disk+"-missing", 1); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no disk: %v, want ErrNotExist", err)
	}
}

func TestPaddedSizesAreFew(t *testing.T) {
	t.Parallel()
	for size, want := range map[int64]int64{0: 64 << 20, 64 << 20: 64 << 20, 64<<20 + 1: 128 << 20, 3 << 30: 4 << 30, 4 << 30: 4 << 30} {
		if got := Padded(size); got != want {
			t.Errorf("%d bytes become %d, want %d", size, got, want)
		}
	}
}
