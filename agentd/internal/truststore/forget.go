//go:build linux

package truststore

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Forget takes certificates that Install added out of every bundle below root. Java's keystores keep them.
func Forget(root string, ca []byte) error {
	certs, err := certificates(ca)
	if err != nil || len(certs) == 0 {
		return err
	}
	var errs []error
	for _, name := range bundles {
		if err := cutOut(filepath.Join(root, name), certs); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, fmt.Errorf("forget another sandbox's CA in /%s: %w", name, err))
		}
	}
	for _, dir := range anchors {
		if err := os.Remove(filepath.Join(root, dir, anchorName)); err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func cutOut(path string, certs [][]byte) error {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil {
		return err
	} else if !st.Mode().IsRegular() || st.Size() > maxBundleBytes {
		return nil // Install wrote nothing to it either
	}
	have, err := io.ReadAll(io.LimitReader(f, maxBundleBytes))
	if err != nil {
		return err
	}
	left := have
	for _, c := range certs {
		left = bytes.ReplaceAll(left, c, nil)
	}
	if len(left) == len(have) {
		return nil
	}
	_, err = f.WriteAt(left, 0)
	return errors.Join(err, f.Truncate(int64(len(left))))
}
