//go:build !linux

package capture

import "os"

func writeAt(f *os.File, b []byte, at int64) error {
	_, err := f.WriteAt(b, at)
	return err
}
