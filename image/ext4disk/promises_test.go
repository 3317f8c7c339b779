package ext4disk

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// emptyDisks makes two disks of the same size.
func emptyDisks(t *testing.T) (paths [2]string) {
	t.Helper()
	for i := range paths {
		paths[i] = filepath.Join(t.TempDir(), "disk")
		if err := CreateEmpty(paths[i], minEmptyBytes); err != nil {
			t.Fatal(err)
		}
	}
	return paths
}

// TestI18_EmptyDisksHaveTheirOwnIdentity: two have no UUID and no seed of their directories' hashes in common, and the journal is the
// file system's own.
func TestI18_EmptyDisksHaveTheirOwnIdentity(t *testing.T) {
	t.Parallel()
	l, err := newLayout(minEmptyBytes)
	if err != nil {
		t.Fatal(err)
	}
	const uuidAt, seedAt, journalUUIDAt, size = 0x68, 0xec, 0x30, 16
	var uuids, seeds [2][]byte
	for i, path := range emptyDisks(t) {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		read := func(at int64) []byte {
			b := make([]byte, size)
			if _, err := f.ReadAt(b, at); err != nil {
				t.Fatal(err)
			}
			return b
		}
		uuids[i], seeds[i] = read(superblockOffset+uuidAt), read(superblockOffset+seedAt)
		if journal := read(int64(l.journal)*blockSize + journalUUIDAt); !bytes.Equal(journal, uuids[i]) {
			t.Errorf("the journal is of %x, and the file system %x", journal, uuids[i])
		}
		if uuids[i][6]>>4 != 4 || uuids[i][8]>>6 != 2 || bytes.Equal(seeds[i], make([]byte, size)) {
			t.Errorf("UUID %x, seed %x", uuids[i], seeds[i])
		}
		_ = f.Close()
	}
	if bytes.Equal(uuids[0], uuids[1]) || bytes.Equal(seeds[0], seeds[1]) {
		t.Errorf("both disks have UUID %x and seed %x", uuids[0], seeds[0])
	}
}

// TestEmptyDisksAreSafe: nobody else reads them, an error stops writes, a kill loses nothing that was synced, and the guest's root owns
// them.
func TestEmptyDisksAreSafe(t *testing.T) {
	t.Parallel()
	disk := emptyDisks(t)[0]
	if info, err := os.Stat(disk); err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	words := func(command string) string {
		return strings.Join(strings.Fields(debugfs(t, disk, false, command)), " ")
	}
	super := words("show_super_stats -h")
	for _, want := range []string{"has_journal", "Errors behavior: Remount read-only", "Default mount options: user_xattr acl", "Filesystem state: clean"} {
		if !strings.Contains(super, want) {
			t.Errorf("the file system has no %q:\n%s", want, super)
		}
	}
	root := words("stat /")
	for _, want := range []string{"Type: directory", "Mode: 0755", "User: 0 Group: 0"} {
		if !strings.Contains(root, want) {
			t.Errorf("the root is not %q:\n%s", want, root)
		}
	}
}
