package sandbox

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"syscall"
)

// entryBytes is what an entry of a directory counts at least against the room on this machine.
const entryBytes = 4 << 10

// headerBytes is what the header of an entry takes beside its names.
const headerBytes = 2 << 10

// costOf is what an entry counts beside its content. A name may have a megabyte.
func costOf(h *tar.Header) int64 {
	return max(entryBytes, int64(len(h.Name)+len(h.Linkname))+headerBytes)
}

// copyArchive copies the files, directories and links of a guest's archive, without those for which skip is true, and then
// reads r to its end. What they will take is subtracted from left, and ENOSPC is the error when it is used up: an archive may
// have no end, and a sparse file or an empty directory in it costs the guest nothing.
func copyArchive(w io.Writer, r io.Reader, left *int64, skip func(*tar.Header) bool) error {
	in, out := tar.NewReader(r), tar.NewWriter(w)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("read the guest's archive: %w", err)
		}
		if h.Size > *left-costOf(h) {
			return fmt.Errorf("what the sandbox wrote is more than this machine has room for: %w", syscall.ENOSPC)
		}
		*left -= h.Size + costOf(h)
		if skip != nil && skip(h) {
			continue
		}
		if err := copyEntry(out, in, h); err != nil {
			return fmt.Errorf("copy the guest's archive: %w", err)
		}
	}
	if _, err := io.Copy(io.Discard, r); err != nil { // what the guest says of the archive comes behind it
		return err
	}
	return out.Close()
}

func copyEntry(out *tar.Writer, in io.Reader, h *tar.Header) error {
	kind := h.Typeflag
	switch kind {
	case tar.TypeDir, tar.TypeSymlink, tar.TypeLink, tar.TypeReg:
	case tar.TypeGNUSparse:
		kind = tar.TypeReg
	default:
		return nil
	}
	err := out.WriteHeader(&tar.Header{
		Typeflag: kind, Name: h.Name, Linkname: h.Linkname, Size: h.Size, Mode: h.Mode, Uid: h.Uid, Gid: h.Gid, ModTime: h.ModTime,
		Format: tar.FormatPAX,
	})
	if err == nil {
		_, err = io.CopyN(out, in, h.Size)
	}
	return err
}
