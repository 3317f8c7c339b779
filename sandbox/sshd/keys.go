package sshd

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
	"golang.org/x/crypto/ssh"

	"github.com/msb-project/msb/sandbox/internal/state"
)

// Keys are those of one sandbox: the server's, and the one that its client shows.
type Keys struct {
	host   ssh.Signer
	client ssh.PublicKey

	// clientFile has the client's private key, knownHostsFile the server's public one for any name.
	clientFile, knownHostsFile string
}

// OpenKeys reads the keys in a sandbox's directory, and makes those that are missing.
func OpenKeys(dir string) (*Keys, error) {
	k := &Keys{clientFile: filepath.Join(dir, state.SSHClientKey), knownHostsFile: filepath.Join(dir, state.SSHKnownHosts)}
	host, err := openKey(filepath.Join(dir, state.SSHHostKey))
	if err != nil {
		return nil, err
	}
	client, err := openKey(k.clientFile)
	if err != nil {
		return nil, err
	}
	k.host, k.client = host, client.PublicKey()
	line := append([]byte("* "), ssh.MarshalAuthorizedKey(host.PublicKey())...)
	if there, err := state.ReadOwn(k.knownHostsFile); err == nil && bytes.Equal(there, line) {
		return k, nil
	}
	return k, renameio.WriteFile(k.knownHostsFile, line, 0o600, renameio.WithStaticPermissions(0o600))
}

// openKey reads a key. One that is missing is made under another name and linked: of several processes that make it, all
// use the first one's.
func openKey(path string) (ssh.Signer, error) {
	text, err := state.ReadOwn(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err = makeKey(path); err == nil || errors.Is(err, fs.ErrExist) {
			text, err = state.ReadOwn(path)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("the sandbox's SSH key: %w", err)
	}
	key, err := ssh.ParsePrivateKey(text)
	if err != nil {
		return nil, fmt.Errorf("%w: the SSH key %s is damaged (%w); remove the file, and another is made", state.ErrState, path, err)
	}
	return key, nil
}

func makeKey(path string) (err error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	block, err := ssh.MarshalPrivateKey(private, "msb")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"*") // 0600
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, state.UnlessGone(os.Remove(f.Name()))) }()
	if _, err := f.Write(pem.EncodeToMemory(block)); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Link(f.Name(), path)
}
