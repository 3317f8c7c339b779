//go:build !linux

package image

import "errors"

// fullDisk needs mount namespaces.
func fullDisk(string, string) error { return errors.ErrUnsupported }
