package main

import (
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/Microsoft/hcsshim/ext4/tar2ext4"
)

// maxAgentBytes is the budget of the agent on disk.
const maxAgentBytes = 10_000_000

func main() {
	agentd := flag.String("agentd", "", "the agent's static binary")
	tour := flag.String("tour", "", "the static binary of msb-tour")
	busybox := flag.String("busybox", "", "a static busybox")
	arch := flag.String("arch", "", "the architecture in the parts' names, as in GOARCH")
	out := flag.String("out", "", "the directory to write to")
	flag.Parse()
	if err := run(*agentd, *tour, *busybox, *arch, *out); err != nil {
		fmt.Fprintln(os.Stderr, "mkparts:", err)
		os.Exit(1)
	}
}

func run(agentd, tour, busybox, arch, out string) error {
	st, err := os.Stat(agentd)
	if err != nil {
		return err
	}
	if st.Size() > maxAgentBytes {
		return fmt.Errorf("the agent has %d bytes, its budget is %d", st.Size(), maxAgentBytes)
	}
	root, err := agentRoot(agentd)
	if err != nil {
		return err
	}
	if err := writePart(filepath.Join(out, "agentd-"+arch+".ext4.gz"), func(w io.Writer) error {
		return ext4(root, w)
	}); err != nil {
		return err
	}
	image, err := builtin(busybox, tour)
	if err != nil {
		return err
	}
	return writePart(filepath.Join(out, "builtin-"+arch+".tar.gz"), image.writeTar)
}

// ext4 converts a tree by way of a temporary file: the converter seeks.
func ext4(t *tree, w io.Writer) error {
	disk, err := os.CreateTemp("", "agentd-*.ext4")
	if err != nil {
		return err
	}
	defer os.Remove(disk.Name())
	defer disk.Close()
	pr, pw := io.Pipe()
	go func() { pw.CloseWithError(t.writeTar(pw)) }()
	if err := tar2ext4.ConvertTarToExt4(pr, disk); err != nil {
		return fmt.Errorf("make the agent's disk: %w", err)
	}
	if _, err := disk.Seek(0, io.SeekStart); err != nil {
		return err
	}
	_, err = io.Copy(w, disk)
	return err
}

// writePart writes a compressed part whole or not at all, and beside it its
// SHA-256: msb names caches after it, and hashing megabytes at every start is
// time that a user waits for.
func writePart(path string, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".part-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	sum := sha256.New()
	z, err := gzip.NewWriterLevel(io.MultiWriter(f, sum), gzip.BestCompression)
	if err != nil {
		return err
	}
	if err := write(z); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	if err := f.Chmod(0o644); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	// A part without its digest is not built; one with another's would be worse.
	if err := os.Remove(path + ".sha256"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return os.WriteFile(path+".sha256", []byte(hex.EncodeToString(sum.Sum(nil))), 0o600)
}
