package kernel

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/msb-project/msb/internal/cachefile"
	"github.com/msb-project/msb/internal/lazyregexp"
)

// Ensure returns the path of the ELF kernel made from the libkrunfw at
// library, making it under dir when it is not there or was damaged.
//
// The file is named for the SHA-256 of libkrunfw. Reading 21 MB to learn that
// hash costs a tenth of a cold start, so a small index file, named for what
// stat says about the library, remembers it.
func Ensure(dir, library string) (string, error) {
	real, err := filepath.EvalSymlinks(library)
	if err != nil {
		return "", err
	}
	info, err := os.Stat(real)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	index := filepath.Join(dir, "kernel-"+statKey(real, info)+".index")
	name, known := lookup(index)
	if !known {
		sum, err := hashFile(real)
		if err != nil {
			return "", err
		}
		name = "kernel-" + sum + ".elf"
	}
	path := filepath.Join(dir, name)
	err = cachefile.Ensure(path, func(w io.Writer) error {
		img, err := openImage(real)
		if err != nil {
			return err
		}
		return img.writeELF(w)
	})
	if err == nil && !known {
		err = cachefile.Write(index, 0o600, []byte(name+"\n"))
	}
	if err != nil {
		return "", fmt.Errorf("the guest kernel: %w", err)
	}
	return path, nil
}

// statKey changes whenever the library is replaced or rewritten.
func statKey(path string, info fs.FileInfo) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "v1\x00%s\x00%d\x00%d", path, info.Size(), info.ModTime().UnixNano()))
	return hex.EncodeToString(sum[:8])
}

// indexLine is what an index holds; earlier ones have the file's size as well.
var indexLine = lazyregexp.New(`^(kernel-[0-9a-f]{64}\.elf)( [0-9]+)?\n$`)

// lookup reads the name of a kernel from an index.
func lookup(index string) (string, bool) {
	raw, err := os.ReadFile(index)
	if err != nil {
		return "", false
	}
	if m := indexLine.Get().FindSubmatch(raw); m != nil {
		return string(m[1]), true
	}
	return "", false
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
