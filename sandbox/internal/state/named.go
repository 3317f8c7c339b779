package state

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/internal/lazyregexp"
	"github.com/msb-project/msb/internal/owned"
)

// namedFile has a number behind the name of a file that renameio or os.CreateTemp is writing.
var namedFile = lazyregexp.New(`^((sandbox|end|run|origin|children)\.json|children\.lock|calls\.jsonl(\.1)?|ca\.pem|ssh_(host_key|client_key|known_hosts)|once-[a-z2-7]{8}|\.((sandbox|end|run|origin|children)\.json|ca\.pem|ssh_(host_key|client_key|known_hosts)|cow-[0-9a-f]{16}\.base)[0-9]+)$`)

// RemoveHalfWritten removes the files of namedFile that a kill in the middle of writing left in a sandbox's directory. The caller holds its lock.
func RemoveHalfWritten(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if name := e.Name(); e.Type().IsRegular() && strings.HasPrefix(name, ".") && namedFile.MatchString(name) {
			err = errors.Join(err, UnlessGone(os.Remove(filepath.Join(dir, name))))
		}
	}
	return err
}

// NamedForm is that of a named sandbox's directory.
func NamedForm(name string, mode fs.FileMode) (owned.Form, bool) {
	if name == ControlSock || name == PeerSock {
		return nil, mode == fs.ModeSocket
	}
	if mode == 0 && namedFile.MatchString(name) {
		return nil, true
	}
	return RunForm(name, mode)
}

// idBytes is how many random bytes make the name of a hidden directory.
const idBytes = 6

// HiddenPath is a new path among the named sandboxes of a home that can't be a sandbox's name.
func HiddenPath(home string) string {
	var b [idBytes]byte
	_, _ = rand.Read(b[:]) // crypto/rand never fails
	return filepath.Join(home, NamedDir, "."+hex.EncodeToString(b[:]))
}

// RemoveNamed deletes the directory of a sandbox. The caller holds its lock, and its machine is gone.
func RemoveNamed(home, name string) error {
	if err := checkNamed(home, name); err != nil {
		return fmt.Errorf("sandbox %s stays: %w; move it away first", name, err)
	}
	gone := HiddenPath(home)
	if err := os.Rename(filepath.Join(home, NamedDir, name), gone); err != nil { // from here on the sandbox is gone, even if the removal breaks off
		return err
	}
	return RemoveOwn(gone, NamedForm)
}

// checkNamed is an error if a sandbox's directory holds files that msb did not make: no removal may delete those.
func checkNamed(home, name string) error {
	all, err := os.OpenFile(filepath.Join(home, NamedDir), os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer func() { _ = all.Close() }()
	dir, err := owned.Open(all, name)
	if err != nil {
		return err
	}
	return errors.Join(owned.Check(dir, NamedForm), dir.Close())
}
