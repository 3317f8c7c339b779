package kernel

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2"
)

// Ensure returns the path of the ELF kernel made from the libkrunfw at
// library, making it under dir when it is not there yet.
//
// The file is named for the SHA-256 of libkrunfw. Reading 21 MB to learn that
// hash costs a tenth of a cold start, so a small index file, named for what
// stat says about the library, remembers it. Both are put in place by rename:
// two processes that do this at once do it twice, and neither sees a half.
func Ensure(dir, library string) (string, error) {
	real, err := filepath.EvalSymlinks(library)
	if err != nil {
		return "", err
	}
	info, err := os.Stat(real)
	if err != nil {
		return "", err
	}
	index := filepath.Join(dir, "kernel-"+statKey(real, info)+".index")
	if path, ok := lookup(dir, index); ok {
		return path, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	return build(dir, index, real)
}

// statKey changes whenever the library is replaced or rewritten.
func statKey(path string, info fs.FileInfo) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "v1\x00%s\x00%d\x00%d", path, info.Size(), info.ModTime().UnixNano()))
	return hex.EncodeToString(sum[:8])
}

// lookup follows an index to a kernel that is there and complete.
func lookup(dir, index string) (string, bool) {
	raw, err := os.ReadFile(index)
	if err != nil {
		return "", false
	}
	var name string
	var size int64
	if _, err := fmt.Sscanf(string(raw), "%s %d\n", &name, &size); err != nil || strings.ContainsRune(name, filepath.Separator) {
		return "", false
	}
	path := filepath.Join(dir, name)
	info, err := os.Stat(path)
	return path, err == nil && info.Mode().IsRegular() && info.Size() == size
}

func build(dir, index, library string) (string, error) {
	sum, err := hashFile(library)
	if err != nil {
		return "", err
	}
	img, err := Open(library)
	if err != nil {
		return "", err
	}
	name := "kernel-" + sum + ".elf"
	path := filepath.Join(dir, name)
	out, err := renameio.NewPendingFile(path, renameio.WithPermissions(0o400))
	if err != nil {
		return "", err
	}
	defer out.Cleanup() //nolint:errcheck // nothing is left to clean after the rename
	if err := img.WriteELF(out); err != nil {
		return "", fmt.Errorf("write the guest kernel: %w", err)
	}
	if err := out.CloseAtomicallyReplace(); err != nil {
		return "", err
	}
	line := fmt.Appendf(nil, "%s %d\n", name, segmentOffset+len(img.Bytes))
	return path, renameio.WriteFile(index, line, 0o600)
}

func hashFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
