package state

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
)

// BaseFile is where a sandbox's directory has what was shown of the directory that its guest has, copied on write, at
// guest.
func BaseFile(dir, guest string) string {
	sum := sha256.Sum256([]byte(guest))
	return filepath.Join(dir, "cow-"+hex.EncodeToString(sum[:8])+".base")
}
