//go:build linux

package system

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"
)

// identityFiles are removed from the copy of a disk, by what they hold. What needs one makes another where it is missing.
var identityFiles = map[string][]string{
	"SSH host keys":                      {"etc/ssh/ssh_host_*", "etc/dropbear/dropbear_*_host_key"},
	"seeds of the random generator":      {"var/lib/systemd/random-seed", "var/lib/urandom/random-seed", "var/lib/misc/random-seed", "var/lib/random-seed", "var/lib/seedrng/seed.*"},
	"keys that are made once per system": {"var/lib/systemd/credential.secret", "var/lib/NetworkManager/secret_key"},
	"identifiers for DHCP":               {"var/lib/dhcpcd/duid", "var/lib/dhcpcd/secret", "etc/dhcpcd.duid"},
}

// machineIDs are files of machine-id(5). Where the second is no link, it has what the first has.
var machineIDs = []string{"etc/machine-id", "var/lib/dbus/machine-id"}

const hostKey = "etc/ssh/ssh_host_ed25519_key"

// RenewIdentity makes new on the copy of a disk, mounted at root, what tells machines apart. All of it is on the disk
// when it returns: after a power cut, the identity of the other machine must not come back.
func RenewIdentity(root string) error {
	removed, err := removeIdentity(root)
	if err == nil && removed {
		err = makeHostKey(filepath.Join(root, hostKey))
	}
	if err == nil {
		err = renewMachineID(root)
	}
	if err != nil {
		return fmt.Errorf("make the copy's identity its own: %w", err)
	}
	dir, err := os.Open(root)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(dir.Fd())), dir.Close())
}

// removeIdentity reports whether OpenSSH's host keys were among the files.
func removeIdentity(root string) (keys bool, err error) {
	for _, patterns := range identityFiles {
		for _, pattern := range patterns {
			found, err := filepath.Glob(filepath.Join(root, pattern))
			if err != nil {
				return false, err
			}
			for _, path := range found {
				if err := os.Remove(path); err != nil {
					return false, err
				}
				keys = keys || filepath.Dir(path) == filepath.Join(root, "etc/ssh")
			}
		}
	}
	return keys, nil
}

// makeHostKey makes one key, so that an SSH server of the guest's still starts.
func makeHostKey(path string) error {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	block, err := ssh.MarshalPrivateKey(key, "")
	if err != nil {
		return err
	}
	public, err := ssh.NewPublicKey(key.Public())
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(path, pem.EncodeToMemory(block), 0o600),
		os.WriteFile(path+".pub", ssh.MarshalAuthorizedKey(public), 0o644), //nolint:gosec // a public key
	)
}

// renewMachineID replaces an id that is there. One that is empty or "uninitialized" is made by who needs it.
func renewMachineID(root string) error {
	var b [16]byte
	_, _ = rand.Read(b[:])                      // crypto/rand never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80 // RFC 9562, version 4, as systemd makes it
	for i, name := range machineIDs {
		path := filepath.Join(root, name)
		info, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) || err == nil && i > 0 && info.Mode().Type() == fs.ModeSymlink {
			continue
		}
		if err != nil {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // a link that leads nowhere
			return err
		}
		if id := bytes.TrimSpace(text); len(id) == 0 || string(id) == "uninitialized" {
			continue
		}
		if err := replaceFile(path, hex.EncodeToString(b[:])+"\n"); err != nil {
			return err
		}
	}
	return nil
}
